/* SPDX-License-Identifier: Apache-2.0 */
/*
 * doctor_judge - what a judge here would meet: the sandbox, tried with a real program; compilers; room on the disk; the ports.
 */
#include "roles/box_program.h"
#include "roles/cli/doctor.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "cfg/language.h"
#include "proc/box/box.h"
#include "reactor/base/clock.h"
#include "reactor/base/mem.h"
#include "reactor/loop.h"
#include "roles/languages.h"
#include "roles/role.h"
#include "rpc/http/address.h"

#define TRIAL_US (30 * US_PER_S)
#define MIB (INT64_C(1) << 20)
#define ROOMY_BYTES (1024 * MIB)

/* --- the sandbox -------------------------------------------------------------------------------------------------------- */

struct trial {
	bool over, fine;
	int64_t wall_us;
	char *why; /* when it is not fine */
};

static void on_trial_done(void *arg, const struct box_result *result)
{
	struct trial *t = arg;

	t->over = true;
	t->fine = result->end == BOX_EXITED && result->exit_code == 0;
	t->wall_us = result->wall_us;
	if (result->end == BOX_FAILED)
		t->why = mem_strdup(result->failure);
	else if (!t->fine)
		t->why = mem_printf("/bin/true ended in it otherwise than with exit code 0");
}

static void run_trial(struct cli *cli, struct box_host *host, struct trial *t)
{
	char true_path[] = "/bin/true";
	char *argv[] = {true_path, NULL};
	const struct box_spec spec = {
		.argv = argv,
		.stdin_fd = -1,
		.files_fd = -1,
		.limits = {.cpu_us = US_PER_S,
			.wall_us = 10 * US_PER_S,
			.memory_bytes = 64 * MIB,
			.output_bytes = MIB,
			.file_bytes = MIB,
			.processes = 8,
			.stack_bytes = 8 * MIB},
	};
	const struct box_events events = {.on_done = on_trial_done};
	int64_t deadline_us = loop_now_us(cli->loop) + TRIAL_US;
	struct box_run *run = NULL;
	int rc = box_run(host, &spec, &events, t, &run);

	while (!rc && !t->over && !cli->interrupted && loop_now_us(cli->loop) < deadline_us)
		loop_turn(cli->loop, US_PER_S);
	if (!rc && !t->over)
		box_run_cancel(&run);
	if (!t->fine && !t->why)
		t->why = mem_printf("%s", rc ? strerror(-rc) : "no end within 30 s");
}

/* What an ordinary user's sandbox lacks, by the texts behind the first comma of its isolation. */
static const struct {
	const char *gap, *means;
	bool has_reason; /* the shortfall has a line for it; what is wrong with control groups is a check of its own */
} gaps[] = {
	{"one uid",
		"programs run with your own uid: walls of namespaces only between them and the "
		"judge",
		true},
	{"limits polled",
		"memory is looked at every few ms, not limited by the kernel: a limit is passed by "
		"some MB "
		"before it ends a program, and one that means to can evade it",
		false},
};

static void add_gaps(struct doctor *d, const struct box_host *host)
{
	struct str lines = str_from(box_host_shortfall(host)), line, what;

	for (size_t i = 0; i < ARRAY_SIZE(gaps); i++) {
		char *advice cleanup(mem_freep) = NULL;

		if (!strstr(box_host_isolation(host), gaps[i].gap))
			continue;
		if (gaps[i].has_reason && str_cut(&lines, '\n', &line) &&
			str_cut(&line, ':', &what)) {
			advice = mem_printf(STR_FMT, STR_ARG(str_trim(line)));
			doctor_add(d, FINDING_WARN, advice, "%s: %s (" STR_FMT ")", gaps[i].gap,
				gaps[i].means, STR_ARG(what));
			continue;
		}
		doctor_add(d, FINDING_WARN, "what the line 'cgroups' says", "%s: %s", gaps[i].gap,
			gaps[i].means);
	}
}

static void try_sandbox(struct doctor *d, const char *helper)
{
	struct cli *cli = doctor_cli(d);
	char dir[] = "/tmp/conclave-doctor.XXXXXX";
	struct box_options options = {
		.slots = 1, .helper = helper, .helper_fd = -1, .run_dir = dir};
	struct trial t = {0};
	struct box_host *host = NULL;

	if (!mkdtemp(dir)) {
		doctor_add(d, FINDING_FAIL, "make room in /tmp", "not tried: /tmp: %s",
			strerror(errno));
		return;
	}
	if (box_host_open(cli_loop(cli), &box_ns, &options, &host, &t.why) == 0)
		run_trial(cli, host, &t);
	if (t.fine) {
		doctor_add(d, FINDING_OK, NULL, "a program ran in it in %.1f ms; isolation: %s",
			(double)t.wall_us / US_PER_MS, box_host_isolation(host));
		add_gaps(d, host);
	} else {
		doctor_add(d, FINDING_FAIL,
			geteuid() == 0
				? "mend what it says; executor.box = none needs nothing, and "
				  "isolates nothing"
				: "what it says; or start the judge as root: sudo judicator "
				  "--standalone; executor.box = none needs nothing, and "
				  "isolates nothing",
			"no program can run in it: %s", t.why ? t.why : "for no known reason");
	}
	box_host_close(host);
	free(t.why);
	rmdir(dir);
}

void doctor_sandbox(struct doctor *d)
{
	char *helper cleanup(mem_freep) = box_program_find(doctor_cli(d)->env->program);

	if (!helper) {
		doctor_add(d, FINDING_FAIL,
			"install Conclave whole, or set executor.helper to where it is",
			"conclave-box is neither beside this program nor in $PATH");
		return;
	}
	doctor_add(d, FINDING_OK, NULL, "%s", helper);
	try_sandbox(d, helper);
}

/* --- languages ------------------------------------------------------------------------------------------------------------ */

/* Debian's package of a program, by its file name. */
static const struct {
	const char *program, *package;
} packages[] = {
	{"bash", "bash"},
	{"fpc", "fp-compiler"},
	{"g++", "g++"},
	{"gcc", "gcc"},
	{"go", "golang-go"},
	{"java", "openjdk-17-jdk-headless"},
	{"javac", "openjdk-17-jdk-headless"},
	{"lua5.4", "lua5.4"},
	{"luac5.4", "lua5.4"},
	{"mcs", "mono-mcs"},
	{"mono", "mono-runtime"},
	{"node", "nodejs"},
	{"php", "php-cli"},
	{"python3", "python3"},
	{"ruby", "ruby"},
	{"rustc", "rustc"},
};

char *doctor_missing_program(const char *argument)
{
	static const char place[] = "/usr/bin/",
			  letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
				      "0123456789._+-";

	for (const char *at = argument; (at = strstr(at, place)) != NULL; at += strlen(place)) {
		size_t n = strspn(at + strlen(place), letters);
		char *path = mem_printf("%.*s", (int)(strlen(place) + n), at);

		if (n && access(path, X_OK) != 0)
			return path;
		free(path);
	}
	return NULL;
}

/* The first of the language's own programs that is not there (free()), or NULL. */
static char *missing_program(const struct language *l)
{
	char **const commands[] = {l->compile, l->run, l->version};

	for (size_t i = 0; i < ARRAY_SIZE(commands); i++) {
		for (char **argument = commands[i]; argument && *argument; argument++) {
			char *missing = doctor_missing_program(*argument);

			if (missing)
				return missing;
		}
	}
	return NULL;
}

static void check_language(struct doctor *d, const struct language *l)
{
	char *missing cleanup(mem_freep) = missing_program(l), *advice cleanup(mem_freep) = NULL;
	const char *base = missing ? strrchr(missing, '/') + 1 : NULL;

	if (!missing) {
		doctor_add(d, FINDING_OK, NULL, "%s (%s)", l->name, l->title);
		return;
	}
	for (size_t i = 0; i < ARRAY_SIZE(packages); i++)
		if (strcmp(packages[i].program, base) == 0)
			advice = mem_printf("apt-get install %s", packages[i].package);
	if (!advice)
		advice = mem_printf(
			"install the package that has %s: apt-file search %s", missing, missing);
	doctor_add(d, FINDING_WARN, advice, "%s (%s) is not offered: %s is missing", l->name,
		l->title, missing);
}

void doctor_languages(struct doctor *d)
{
	struct cfg *cfg = cfg_new();
	const struct role_env env = {.cfg = cfg, .program = doctor_cli(d)->env->program};
	struct map languages;

	map_init(&languages);
	if (languages_load(&env, &languages) != 0)
		doctor_add(d, FINDING_FAIL,
			"set executor.languages; judicator --standalone names each problem",
			"the language profiles cannot be read");
	map_each (it, &languages)
		check_language(d, map_entry_of(it)->value);
	language_map_fini(&languages);
	cfg_free(cfg);
}

/* --- room ------------------------------------------------------------------------------------------------------------------ */

/* The directory, or the nearest above it that is there. */
static void nearest(char *path)
{
	while (path[1] && access(path, F_OK) != 0) {
		char *slash = strrchr(path, '/');

		slash[slash == path] = '\0';
	}
}

void doctor_disk(struct doctor *d)
{
	char *path cleanup(mem_freep) = machine_state_dir(doctor_cli(d));
	struct buf room cleanup(buf_fini) = BUF_INIT;
	struct cfg *cfg = cfg_new();
	int64_t reserve = cfg_int(cfg, OPT_judicator_reserve), bytes;
	struct statvfs st;

	cfg_free(cfg);
	if (!path) {
		doctor_add(d, FINDING_FAIL, "judicator --standalone --dir DIR",
			"there is no home directory to keep state in");
		return;
	}
	nearest(path);
	if (statvfs(path, &st) != 0) {
		doctor_add(d, FINDING_FAIL, "judicator --standalone --dir DIR", "%s: %s", path,
			strerror(errno));
		return;
	}
	bytes = (int64_t)st.f_bavail * (int64_t)st.f_frsize;
	text_bytes(bytes, &room);
	if (bytes < reserve)
		doctor_add(d, FINDING_FAIL, "make room there, or keep state elsewhere: --dir DIR",
			"%s: %s free; below %lld MiB no task is accepted", path, room.data,
			(long long)(reserve / MIB));
	else
		doctor_add(d, bytes < ROOMY_BYTES ? FINDING_WARN : FINDING_OK,
			bytes < ROOMY_BYTES ? "make room there soon" : NULL, "%s: %s free", path,
			room.data);
}

/* --- ports ------------------------------------------------------------------------------------------------------------------ */

static void check_port(struct doctor *d, const char *what, const char *text)
{
	struct http_address address;
	char *advice cleanup(mem_freep) = NULL;
	int fd, yes = 1, rc;

	if (!http_address_parse(text, &address))
		return;
	fd = socket(address.sockaddr.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
	rc = bind(fd, (const struct sockaddr *)&address.sockaddr, address.len);
	if (rc == 0) {
		doctor_add(d, FINDING_OK, NULL, "%s is free for the %s", text, what);
	} else {
		advice =
			mem_printf("ss -ltnp 'sport = :%u'; or choose another: --%s=127.0.0.1:PORT",
				address.port, what);
		doctor_add(d, FINDING_FAIL, advice, "%s cannot be the %s: %s", text, what,
			strerror(errno));
	}
	if (fd >= 0)
		close(fd);
}

static void check_default_ports(struct doctor *d)
{
	static const enum cfg_option options[] = {OPT_gateway_addresses, OPT_judicator_address};
	static const char *const names[] = {"gateway.addresses", "judicator.address"};
	struct cfg *cfg = cfg_new();

	for (size_t i = 0; i < ARRAY_SIZE(options); i++)
		check_port(d, names[i], cfg_str(cfg, options[i]));
	cfg_free(cfg);
}

void doctor_ports(struct doctor *d)
{
	const struct question question = {
		.method = "GET", .path = "/healthz", .timeout_us = 5 * US_PER_S};
	struct cli *cli = doctor_cli(d);
	struct answer answer;
	int rc = cli_ask(cli, &question, &answer);

	if (!rc)
		doctor_add(d, FINDING_OK, NULL,
			"%s answers: version " STR_FMT ", judicator " STR_FMT, cli_url(cli),
			STR_ARG(member(answer.json, "version")),
			STR_ARG(member(answer.json, "judicator")));
	else if (answer.failure == HTTP_OK_REPLY && answer.json)
		doctor_add(d, FINDING_FAIL, "conclave services; and look into its log",
			"%s answers %d " STR_FMT ": " STR_FMT, cli_url(cli), answer.status,
			STR_ARG(member(answer.json, "code")),
			STR_ARG(member(answer.json, "detail")));
	else if (cli_value(cli, "--url") || cli->env->url)
		doctor_add(d, FINDING_FAIL, "judicator --standalone", "nobody answers at %s",
			cli_url(cli));
	else
		check_default_ports(d);
	answer_fini(&answer);
}

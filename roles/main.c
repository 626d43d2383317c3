/* SPDX-License-Identifier: Apache-2.0 */
/*
 * main - the daemons. Built once a program with CONCLAVE_PROGRAM naming its row in the table below; a program is a list
 * of services, and --standalone is another list with a preset of options, on the same path.
 *
 * One executable is three kinds of process: boot, which people start; the services, which boot starts as the same executable
 * with --service NAME; and workers, which a service starts with --worker N beside that. Adding a service to a program is a row.
 */
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "reactor/base/mem.h"
#include "reactor/loop.h"
#include "reactor/signal.h"
#include "roles/args.h"
#include "roles/boot/boot.h"
#include "roles/boot/dirs.h"
#include "roles/boot/user.h"
#include "roles/role.h"
#include "roles/service.h"

/* --- the table of programs ----------------------------------------------------------------------- */

struct preset {
	enum cfg_option option;
	const char *value;    /* or NULL: */
	enum cfg_option from; /* the value of this option, so that the two agree */
};

struct service_list {
	const struct service *services; /* in start order */
	size_t n;
	const struct preset *presets;
	size_t n_presets;
};

struct program {
	const char *name, *summary;
	struct service_list usual, standalone; /* standalone.n = 0: not offered */
};

static const struct service judicator_services[] = {{"main", &judicator_role}};
static const struct service executor_services[] = {{"main", &executor_role}};
static const struct service gateway_services[] = {{"web", &web_role}};
static const struct service standalone_services[] = {
	{"judicator", &judicator_role},
	{"executor", &executor_role},
	{"gateway", &web_role},
};

static const struct preset standalone_presets[] = {
	{.option = OPT_etcd_enabled, .value = "no"},
	{.option = OPT_executor_box, .value = "auto"},
	{.option = OPT_judicator_addresses, .from = OPT_judicator_address},
	{.option = OPT_judicator_leading, .value = "yes"},
	{.option = OPT_judicator_store, .value = "sqlite"},
};

#define SERVICES(array) .services = array, .n = ARRAY_SIZE(array)

static const struct program programs[] = {
	{
		.name = "executor",
		.summary = "compiles and runs submissions in a sandbox",
		.usual = {SERVICES(executor_services)},
	},
	{
		.name = "gateway",
		.summary = "serves the HTTP API and the web page",
		.usual = {SERVICES(gateway_services)},
	},
	{
		.name = "judicator",
		.summary = "keeps the tasks and hands them to executors",
		.usual = {SERVICES(judicator_services)},
		.standalone = {SERVICES(standalone_services), .presets = standalone_presets,
			.n_presets = ARRAY_SIZE(standalone_presets)},
	},
};

static const struct program *program_find(const char *name)
{
	for (size_t i = 0; i < ARRAY_SIZE(programs); i++)
		if (strcmp(programs[i].name, name) == 0)
			return &programs[i];
	return NULL;
}

static const struct service *list_find(const struct service_list *list, const char *name)
{
	for (size_t i = 0; i < list->n; i++)
		if (strcmp(list->services[i].name, name) == 0)
			return &list->services[i];
	return NULL;
}

static unsigned list_mask(const struct service_list *list)
{
	unsigned mask = CFG_BOOT;

	for (size_t i = 0; i < list->n; i++)
		mask |= list->services[i].role->service;
	return mask;
}

/* --- what is only printed ------------------------------------------------------------------------ */

static const struct {
	int status;
	const char *prose;
} exits[] = {
	{0, "an ordered stop, or what was asked for was printed"},
	{BOOT_EXIT_FAILED, "the machine is not ready: a directory, the lock, the disk"},
	{BOOT_EXIT_USAGE, "the configuration or the command line is wrong; nothing was started"},
};

static const struct {
	const char *path, *prose;
} files[] = {
	{"/etc/conclave/", "the configuration files of the packaged services"},
	{"/var/lib/conclave/", "state of a program started as root; elsewhere with --dir"},
	{"/var/lib/conclave/secret",
		"what judicators, executors and gateways share, made at the first start; mode "
		"0600, the same on every machine"},
	{"/run/conclave/", "a run directory a program: pid files, boot.lock, generated files"},
};

static const struct {
	const char *name, *prose;
} signals[] = {
	{"SIGTERM, SIGINT", "stop the services in reverse order, then end"},
	{"SIGHUP", "read the configuration again; options marked so take effect at once"},
};

static unsigned program_mask(const struct program *program)
{
	return list_mask(&program->usual) |
	       (program->standalone.n ? list_mask(&program->standalone) : 0);
}

static void doc_help(const struct program *program, struct buf *out)
{
	bool standalone = program->standalone.n > 0;

	buf_addf(out, "%s - %s\n\nusage: %s [-c FILE] [--section.key=VALUE ...]\n", program->name,
		program->summary, program->name);
	if (standalone)
		buf_addf(out, "       %s --standalone [--dir DIR]\n", program->name);
	buf_add_char(out, '\n');
	args_doc_help(out, standalone);
	buf_add_str(out, STR("\nsignals:\n"));
	for (size_t i = 0; i < ARRAY_SIZE(signals); i++)
		buf_addf(out, "  %s\n      %s\n", signals[i].name, signals[i].prose);
	buf_add_str(out, STR("\nexit status:\n"));
	for (size_t i = 0; i < ARRAY_SIZE(exits); i++)
		buf_addf(out, "  %d   %s\n", exits[i].status, exits[i].prose);
	buf_add_str(out, STR("\noptions (in a file: key = VALUE below [section]; in the "
			     "environment: CONCLAVE_SECTION_KEY):\n"));
	cfg_doc_help(out, program_mask(program));
}

static void man_tail(const struct program *program, struct buf *out)
{
	buf_add_str(out, STR(".Sh FILES\n.Bl -tag -width Ds\n"));
	for (size_t i = 0; i < ARRAY_SIZE(files); i++) {
		buf_addf(out, ".It Pa %s\n", files[i].path);
		cfg_doc_mdoc(out, str_from(files[i].prose));
	}
	buf_add_str(out, STR(".El\n.Sh EXIT STATUS\n.Bl -tag -width Ds\n"));
	for (size_t i = 0; i < ARRAY_SIZE(exits); i++) {
		buf_addf(out, ".It %d\n", exits[i].status);
		cfg_doc_mdoc(out, str_from(exits[i].prose));
	}
	buf_add_str(out, STR(".El\n.Sh SEE ALSO\n.Xr conclave-log 5 ,\n"
			     ".Xr conclave-options 5"));
	for (size_t i = 0; i < ARRAY_SIZE(programs); i++)
		if (&programs[i] != program)
			buf_addf(out, " ,\n.Xr %s 8", programs[i].name);
	buf_add_char(out, '\n');
}

static void doc_man(const struct program *program, struct buf *out)
{
	bool standalone = program->standalone.n > 0;

	buf_addf(out, ".Dd %s\n.Dt ", CONCLAVE_DATE);
	for (const char *c = program->name; *c; c++)
		buf_add_char(out, (char)(*c - 'a' + 'A')); /* names are lower case letters */
	buf_addf(out,
		" 8\n.Os\n.Sh NAME\n.Nm %s\n.Nd %s\n.Sh SYNOPSIS\n"
		".Nm\n.Op Fl c Ar FILE\n.Op Fl Fl section.key Ns = Ns Ar VALUE ...\n",
		program->name, program->summary);
	if (standalone)
		buf_add_str(out, STR(".Nm\n.Fl Fl standalone\n.Op Fl Fl dir Ar DIR\n"));
	buf_add_str(out, STR(".Sh DESCRIPTION\n"));
	args_doc_man(out, standalone);
	buf_add_str(out, STR(".Sh OPTIONS\nEach may stand in the file as\n"
			     ".Cm key = VALUE\nbelow its\n.Cm [section] ,\n"
			     "in the environment as\n.Ev CONCLAVE_SECTION_KEY\nand on the "
			     "command line.\n"));
	cfg_doc_man(out, program_mask(program));
	buf_add_str(out, STR(".Sh SIGNALS\n.Bl -tag -width Ds\n"));
	for (size_t i = 0; i < ARRAY_SIZE(signals); i++) {
		buf_addf(out, ".It %s\n", signals[i].name);
		cfg_doc_mdoc(out, str_from(signals[i].prose));
	}
	buf_add_str(out, STR(".El\n"));
	man_tail(program, out);
}

static void doc_sample(const struct program *program, struct buf *out)
{
	cfg_doc_sample(out, program_mask(program));
}

static void doc_version(const struct program *program, struct buf *out)
{
	buf_addf(out, "%s %s\n", program->name, CONCLAVE_VERSION);
}

static int print(const struct program *program, void (*doc)(const struct program *, struct buf *))
{
	struct buf text cleanup(buf_fini) = BUF_INIT;

	doc(program, &text);
	if (fwrite(text.data, 1, text.len, stdout) != text.len || fflush(stdout) != 0)
		return BOOT_EXIT_FAILED;
	return 0;
}

/* True when the arguments ask for a text and nothing else; *rc = the exit code. */
static bool print_wanted(const struct program *program, const struct args *args, int *rc)
{
	const struct {
		bool wanted;
		void (*doc)(const struct program *, struct buf *);
	} texts[] = {
		{args->help, doc_help},
		{args->version, doc_version},
		{args->sample, doc_sample},
		{args->man, doc_man},
	};

	for (size_t i = 0; i < ARRAY_SIZE(texts); i++)
		if (texts[i].wanted) {
			*rc = print(program, texts[i].doc);
			return true;
		}
	return false;
}

/* --- the configuration --------------------------------------------------------------------------- */

/* Where a configuration comes from, kept to read it again at SIGHUP. */
struct sources {
	const struct program *program;
	int argc;
	char **argv, **environment;
};

static const struct service_list *list_of(const struct program *program, const struct args *args)
{
	return args->standalone ? &program->standalone : &program->usual;
}

static void apply_presets(
	struct cfg *cfg, const struct service_list *list, struct cfg_errors *errors)
{
	for (size_t i = 0; i < list->n_presets; i++) {
		const struct preset *p = &list->presets[i];

		cfg_set_default(cfg, p->option, p->value ? p->value : cfg_str(cfg, p->from),
			"--standalone", errors);
	}
}

/* What no single row can check. */
static void check_together(const struct cfg *cfg, struct cfg_errors *errors)
{
	struct user user;

	if (cfg_bool(cfg, OPT_etcd_enabled))
		cfg_errors_add(errors, "etcd.enabled",
			"this version has no etcd service; name the judicators in "
			"judicator.addresses");
	if (geteuid() == 0 && user_find(cfg_str(cfg, OPT_boot_user), &user))
		cfg_errors_add(errors, "boot.user",
			"no such user: %s; make it, or name another account or uid",
			cfg_str(cfg, OPT_boot_user));
}

static void check_roles(
	const struct cfg *cfg, const struct service_list *list, struct cfg_errors *errors)
{
	for (size_t i = 0; i < list->n; i++) {
		const struct role *role = list->services[i].role;

		for (; role; role = role->worker)
			if (role->check)
				role->check(cfg, errors);
	}
}

static void resolve_dirs(struct cfg *cfg, struct cfg_errors *errors)
{
	struct buf space cleanup(buf_fini) = BUF_INIT;
	struct dirs_env env;

	dirs_env_get(&env, CONCLAVE_PROGRAM, &space);
	dirs_resolve(cfg, &env, errors);
}

/* Reads everything there is and collects all that is wrong. args borrows from from->argv. */
static void configure(
	const struct sources *from, struct cfg *cfg, struct args *args, struct cfg_errors *errors)
{
	char **argv cleanup(mem_freep) = mem_array((size_t)from->argc + 1, sizeof(*argv));
	int argc = from->argc;

	memcpy(argv, from->argv, (size_t)argc * sizeof(*argv));
	cfg_load_argv(cfg, &argc, argv, errors);
	args_parse(args, argc, argv, from->program->standalone.n > 0, errors);
	if (args->service)
		return; /* its file says it all */
	if (args->config)
		cfg_load_file(cfg, args->config, errors);
	cfg_load_env(cfg, from->environment, errors);
	if (args->dir)
		cfg_set(cfg, OPT_boot_dir, args->dir, "--dir", errors);
	apply_presets(cfg, list_of(from->program, args), errors);
	check_together(cfg, errors);
	check_roles(cfg, list_of(from->program, args), errors);
	resolve_dirs(cfg, errors);
}

/* --- boot ---------------------------------------------------------------------------------------- */

struct daemon {
	const struct sources *from;
	struct cfg *cfg;
	struct log *log;
	struct loop *loop;
	struct boot *boot;
	struct signal_watch *on_term, *on_int, *on_hup;
};

static void on_boot_stopped(void *arg)
{
	struct daemon *d = arg;

	loop_stop(d->loop);
}

static void on_stop_signal(void *arg, int signum unused)
{
	struct daemon *d = arg;

	boot_stop(d->boot, on_boot_stopped, d);
}

static void log_errors(struct log *log, const struct cfg_errors *errors)
{
	struct str rest = buf_str(&errors->text), line;
	char quoted[LOG_QUOTE_MAX];

	while (str_cut(&rest, '\n', &line))
		if (line.n > 0)
			log_error(log, "reload-failed", "error=%s", log_quote(line, quoted));
}

static enum log_level level_of(const struct cfg *cfg)
{
	enum log_level level = LOG_INFO;

	CHECK(log_level_parse(str_from(cfg_str(cfg, OPT_log_level)), &level));
	return level;
}

static void on_reload_signal(void *arg, int signum unused)
{
	struct daemon *d = arg;
	struct cfg_errors errors cleanup(cfg_errors_fini) = {BUF_INIT, 0};
	struct buf ignored cleanup(buf_fini) = BUF_INIT;
	struct cfg *fresh = cfg_new();
	struct args args;

	configure(d->from, fresh, &args, &errors);
	if (errors.count > 0) {
		log_errors(d->log, &errors);
	} else {
		cfg_reload(d->cfg, fresh, &ignored);
		if (ignored.len > 0)
			log_warn(d->log, "reload", "needs_restart=\"" STR_FMT "\"",
				STR_ARG(buf_str(&ignored)));
		log_set_level(d->log, level_of(d->cfg));
		boot_reload(d->boot, d->cfg);
	}
	cfg_free(fresh);
}

static void open_daemon(struct daemon *d)
{
	struct loop_options options = {0};

	umask(022);
	d->log = log_new(STDERR_FILENO, "boot", level_of(d->cfg));
	options.log = d->log;
	d->loop = loop_new(&options);
	d->on_term = signal_new(d->loop, SIGTERM, on_stop_signal, d);
	d->on_int = signal_new(d->loop, SIGINT, on_stop_signal, d);
	d->on_hup = signal_new(d->loop, SIGHUP, on_reload_signal, d);
}

static void close_daemon(struct daemon *d)
{
	boot_free(d->boot);
	signal_free(d->on_term);
	signal_free(d->on_int);
	signal_free(d->on_hup);
	loop_free(d->loop);
	log_free(d->log);
}

static int run_boot(const struct sources *from, struct cfg *cfg, const struct service_list *list,
	const char *program)
{
	struct daemon d = {.from = from, .cfg = cfg};
	struct boot_options options = {
		.cfg = cfg,
		.services = list->services,
		.n_services = list->n,
		.program = program,
		.environment = from->environment,
		.pass_fd = STDERR_FILENO,
	};
	int rc;

	open_daemon(&d);
	options.log = d.log;
	rc = boot_start(d.loop, &options, &d.boot);
	if (!rc)
		loop_run(d.loop);
	close_daemon(&d);
	return rc;
}

/* --- main ---------------------------------------------------------------------------------------- */

static int report_errors(const struct program *program, const struct cfg_errors *errors)
{
	fprintf(stderr, STR_FMT, STR_ARG(buf_str(&errors->text)));
	fprintf(stderr, "%s: %u error%s; nothing was started\n", program->name, errors->count,
		errors->count == 1 ? "" : "s");
	return BOOT_EXIT_USAGE;
}

/* False: not a worker of this service. */
static bool read_worker(const struct service *service, const char *text, unsigned *worker)
{
	int64_t number = 0;

	if (text && (!service->role->worker || !str_to_i64(str_from(text), &number) || number < 1 ||
			    number > SERVICE_WORKERS_MAX))
		return false;
	*worker = (unsigned)number;
	return true;
}

static int run_service(const struct program *program, const struct args *args, const char *path)
{
	const struct service *service = list_find(&program->usual, args->service);
	unsigned worker = 0;

	if (!service)
		service = list_find(&program->standalone, args->service);
	if (!service || !args->config || !read_worker(service, args->worker, &worker)) {
		fprintf(stderr,
			"%s: --service is for boot: it needs one of this program's "
			"services and the file that boot made (-c FILE)\n",
			program->name);
		return BOOT_EXIT_USAGE;
	}
	return service_run(service, worker, args->config, path);
}

static int own_path(const struct program *program, char path[PATH_MAX])
{
	ssize_t n = readlink("/proc/self/exe", path, PATH_MAX - 1);

	if (n < 0) {
		fprintf(stderr, "%s: cannot read /proc/self/exe (is /proc mounted?)\n",
			program->name);
		return BOOT_EXIT_FAILED;
	}
	path[n] = '\0';
	return 0;
}

static int run_program(const struct sources *from, struct cfg *cfg, const struct args *args)
{
	char path[PATH_MAX];
	int rc = own_path(from->program, path);

	if (rc)
		return rc;
	if (args->service)
		return run_service(from->program, args, path);
	return run_boot(from, cfg, list_of(from->program, args), path);
}

static int check_or_run(const struct sources *from, struct cfg *cfg, const struct args *args,
	const struct cfg_errors *errors)
{
	if (errors->count > 0)
		return report_errors(from->program, errors);
	if (args->check) {
		printf("%s: the configuration is right\n", from->program->name);
		return 0;
	}
	return run_program(from, cfg, args);
}

int main(int argc, char **argv)
{
	const struct sources from = {program_find(CONCLAVE_PROGRAM), argc, argv, environ};
	struct cfg_errors errors = {BUF_INIT, 0};
	struct cfg *cfg = cfg_new();
	struct args args;
	int rc;

	configure(&from, cfg, &args, &errors);
	if (!print_wanted(from.program, &args, &rc))
		rc = check_or_run(&from, cfg, &args, &errors);
	cfg_errors_fini(&errors);
	cfg_free(cfg);
	return rc;
}

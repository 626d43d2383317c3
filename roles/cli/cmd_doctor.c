/* SPDX-License-Identifier: Apache-2.0 */
/*
 * doctor - looks at the machine and says what keeps a judge from running here, or from isolating in full, and what to type.
 *
 * A check is a row: it looks at one thing and adds a finding or several. ok = as it should be; warn = works, but less than in full;
 * fail = a judge here would not work. Nothing is changed but for the trial of the sandbox, which cleans up behind itself.
 */
#include "roles/cli/doctor.h"

#include <stdarg.h>
#include <string.h>

static const struct cli_flag flags[] = {
	{"--dir", NULL, "DIR", FLAG_FILE,
		"State directory the judge is, or will be, started with."},
};

static const struct {
	const char *name;
	void (*check)(struct doctor *d);
} checks[] = {
	{"user", doctor_user},
	{"namespaces", doctor_namespaces},
	{"cgroups", doctor_cgroups},
	{"seccomp", doctor_seccomp},
	{"core dumps", doctor_core_pattern},
	{"sandbox", doctor_sandbox},
	{"language", doctor_languages},
	{"disk", doctor_disk},
	{"judge", doctor_ports},
};

struct doctor {
	struct cli *cli;
	const char *name; /* of the check that runs */
	struct buf text;
	struct json_writer *json;
	unsigned counts[FINDING_FAIL + 1];
};

static const struct {
	const char *word;
	enum ink ink;
} words[] = {
	[FINDING_OK] = {"ok", INK_GOOD},
	[FINDING_WARN] = {"warn", INK_WARN},
	[FINDING_FAIL] = {"fail", INK_BAD},
};

struct cli *doctor_cli(struct doctor *d)
{
	return d->cli;
}

static void add_json(struct doctor *d, enum finding finding, const char *advice, struct str what)
{
	json_begin_object(d->json);
	json_key(d->json, "check");
	json_text(d->json, d->name);
	json_key(d->json, "finding");
	json_text(d->json, words[finding].word);
	json_key(d->json, "what");
	json_bytes(d->json, what);
	json_key(d->json, "advice");
	json_text(d->json, advice);
	json_end_object(d->json);
}

void doctor_add(struct doctor *d, enum finding finding, const char *advice, const char *fmt, ...)
{
	struct buf what cleanup(buf_fini) = BUF_INIT;
	va_list ap;

	va_start(ap, fmt);
	buf_vaddf(&what, fmt, ap);
	va_end(ap);
	d->counts[finding]++;
	add_json(d, finding, advice, buf_str(&what));
	ink_add(d->cli, words[finding].ink, str_from(words[finding].word), &d->text);
	buf_addf(&d->text, "%*s%-11s ", 5 - (int)strlen(words[finding].word), "", d->name);
	text_safe(buf_str(&what), false, &d->text);
	buf_add_char(&d->text, '\n');
	if (advice) {
		buf_add_str(&d->text, STR("                 -> "));
		text_safe(str_from(advice), false, &d->text);
		buf_add_char(&d->text, '\n');
	}
	if (!d->cli->json)
		cli_print(d->cli, &d->text);
	buf_clear(&d->text);
}

bool doctor_read_line(const char *path, char *out, size_t size)
{
	FILE *file = fopen(path, "re");
	bool read;

	if (!file)
		return false;
	read = fgets(out, (int)size, file) != NULL;
	fclose(file);
	if (read)
		out[strcspn(out, "\n")] = '\0';
	return read;
}

static int run(struct cli *cli)
{
	struct buf json cleanup(buf_fini) = BUF_INIT;
	struct doctor d = {.cli = cli, .json = json_writer_new(&json, false)};

	json_begin_object(d.json);
	json_key(d.json, "checks");
	json_begin_array(d.json);
	for (size_t i = 0; i < ARRAY_SIZE(checks) && !cli->interrupted; i++) {
		d.name = checks[i].name;
		checks[i].check(&d);
	}
	json_end_array(d.json);
	json_end_object(d.json);
	json_writer_free(d.json);
	buf_add_char(&json, '\n');
	if (cli->json)
		cli_print(cli, &json);
	else
		fprintf(cli->env->out, "%u ok, %u warn, %u fail\n", d.counts[FINDING_OK],
			d.counts[FINDING_WARN], d.counts[FINDING_FAIL]);
	buf_fini(&d.text);
	if (cli->interrupted)
		return CLI_INTERRUPTED;
	return d.counts[FINDING_FAIL] ? CLI_NOT_ACCEPTED : CLI_OK;
}

const struct command cmd_doctor = {
	.name = "doctor",
	.args = "",
	.summary = "Check this machine, and say what to type",
	.prose = "A line a finding: ok, warn (works, but less than in full) or fail; the exit code "
		 "is 1 when "
		 "there is a fail. Run it as the user that will start the judge.",
	.flags = {flags, ARRAY_SIZE(flags)},
	.run = run,
};

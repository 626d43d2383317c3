/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Prints conclave-options(5) at build time: the grammar of configuration files, then every option of every program from
 * options.def, so that the page cannot say anything else than the programs do.
 */
#include <stdio.h>

#include "cfg/cfg.h"
#include "cfg/services.h"

static const char head[] =
	".Dd " CONCLAVE_DATE "\n.Dt CONCLAVE-OPTIONS 5\n.Os\n.Sh NAME\n.Nm conclave-options\n"
	".Nd configuration of the judicator, executor and gateway\n.Sh DESCRIPTION\n"
	"A configuration file is given with\n.Fl c Ar FILE .\n"
	"It has sections and settings, one a line:\n"
	".Bd -literal -offset indent\n"
	"# a comment has a line of its own\n[executor]\nname = e1\n.Ed\n.Pp\n";

static const char *const rules[] = {
	"The value is the rest of the line without the blanks around it; in double quotes it is "
	"exactly what stands between them. A value never continues on the next line.",
	"A key given twice, an unknown key or section, a comment behind a value and a file over "
	"256 KiB are errors. All errors are reported at once, each with its place, and nothing is "
	"started.",
	"Durations (250ms, 5s, 2m, 1h) and sizes (100B, 64KiB, 256MiB, 1GiB) need their unit, "
	"except 0. Addresses are IP:PORT or [IPV6]:PORT.",
	"In rising order of strength a value comes from the default, a preset such as "
	"--standalone, the file, the environment (CONCLAVE_SECTION_KEY) and the command line "
	"(--section.key=VALUE). SIGHUP reads everything again; options that SIGHUP reloads take "
	"effect at once, others are named in the log and wait for a restart.",
};

static const char tail[] =
	".Sh FILES\n.Bl -tag -width Ds\n"
	".It Pa /etc/conclave/\nThe files that the packaged services read.\n.El\n"
	".Sh SEE ALSO\n.Xr conclave-log 5 ,\n.Xr executor 8 ,\n.Xr gateway 8 ,\n"
	".Xr judicator 8\n";

int main(void)
{
	struct buf page cleanup(buf_fini) = BUF_INIT;

	buf_add_str(&page, str_from(head));
	for (size_t i = 0; i < ARRAY_SIZE(rules); i++) {
		if (i > 0)
			buf_add_str(&page, STR(".Pp\n"));
		cfg_doc_mdoc(&page, str_from(rules[i]));
	}
	buf_add_str(&page, STR(".Sh OPTIONS\n"));
	cfg_doc_man(&page, CFG_ALL);
	buf_add_str(&page, str_from(tail));
	return fwrite(page.data, 1, page.len, stdout) == page.len && fflush(stdout) == 0 ? 0 : 1;
}

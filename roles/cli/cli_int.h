/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cli_int - what the commands share. A command is a file cmd_NAME.c that ends in its row, and a line in cli.c's table; its flags
 * are rows too. --help, the manual and the completion are made of these rows.
 */
#pragma once

#include <stdint.h>

#include "reactor/base/buf.h"
#include "roles/cli/cli.h"
#include "rpc/http/client.h"
#include "rpc/http/tls.h"
#include "rpc/json.h"

struct addrinfo;
struct loop;

/* --- flags (flags.c) --------------------------------------------------------------------------------------------- */

enum cli_flag_marks {
	FLAG_MANY = 1, /* may be given several times; else the last one counts */
	FLAG_FILE = 2, /* the value is a file or directory: completed so */
};

struct cli_flag {
	const char *name;   /* "--input" */
	const char *letter; /* "-i", or NULL */
	const char *value;  /* how its value is called; NULL = a switch */
	unsigned marks;
	const char *prose;
};

struct cli_flags {
	const struct cli_flag *rows;
	size_t n;
};

struct cli_given { /* one flag of the command line */
	const struct cli_flag *flag;
	const char *value; /* NULL for a switch */
};

struct cli_args {
	struct cli_given *given; /* in order */
	size_t n_given;
	const char **words; /* what is no flag, the command's name left out */
	size_t n_words;
};

extern const struct cli_flags cli_common_flags; /* of every command */

/* --- commands (cli.c) --------------------------------------------------------------------------------------------- */

struct cli;

struct command {
	const char *name;
	const char *args; /* "FILE", "ID ...", or "" */
	const char *summary;
	const char *prose; /* more for --help and the manual, or NULL */
	struct cli_flags flags;
	unsigned words_min, words_max;
	int (*run)(struct cli *cli); /* an enum cli_exit */
};

extern const struct command cmd_cancel;
extern const struct command cmd_completion;
extern const struct command cmd_doctor;
extern const struct command cmd_executors;
extern const struct command cmd_get;
extern const struct command cmd_hold;
extern const struct command cmd_judicators;
extern const struct command cmd_languages;
extern const struct command cmd_list;
extern const struct command cmd_services;
extern const struct command cmd_submit;
extern const struct command cmd_watch;

/* The i-th command in alphabetical order; NULL behind the last. */
const struct command *command_at(size_t i);

#define CLI_ADDRESSES_MAX 8

struct cli {
	const struct cli_env *env;
	const struct command *command; /* NULL: none was named */
	struct cli_args args;
	struct loop *loop;          /* made when first needed */
	struct http_client *client; /* likewise */
	struct http_tls *tls;       /* whom it believes; NULL = http */
	struct signal_watch *on_int, *on_term;
	bool interrupted; /* ^C */
	bool color;
	bool json;
	/* Of the URL, once cli_connect() has read it. */
	char *addresses[CLI_ADDRESSES_MAX]; /* "IP:PORT" */
	size_t n_addresses, address;        /* the one that answered last */
	char *host, *authority;             /* "HOST", "HOST:PORT" */
	char *prefix;                       /* of every path: "" or "/x" */
	char *authorization;                /* or NULL */
	struct http_header headers[6];
};

/* 0, or CLI_USAGE after saying what is wrong. Words and values are borrowed from argv. */
int cli_parse(struct cli *cli, int argc, char **argv);
void cli_args_fini(struct cli_args *args);
bool cli_has(const struct cli *cli, const char *flag);
/* The last value given, or NULL. */
const char *cli_value(const struct cli *cli, const char *flag);
/* The n-th value of a FLAG_MANY, or NULL. */
const char *cli_value_at(const struct cli *cli, const char *flag, size_t n);

/* "conclave: ..." on stderr, a line; returns code. */
int cli_fail(const struct cli *cli, int code, const char *fmt, ...) printf_like(3, 4);
/* The loop, with ^C watched if the environment says so. */
struct loop *cli_loop(struct cli *cli);
/* Turns until the time is over or ^C: false for ^C. */
bool cli_pause(struct cli *cli, int64_t us);

/* --- asking the gateway (ask.c) ------------------------------------------------------------------------------------- */

struct question {
	const char *method; /* "GET" ... */
	const char *path;   /* with query, "/api/v1/..." */
	struct str body;    /* JSON, or absent */
	const char *type;   /* of another body; NULL = JSON */
	const char *key;    /* Idempotency-Key, or NULL */
	int64_t timeout_us; /* 0 = 20 s */
	/* A stream of events: its pieces as they come. One that is silent for longer than a gateway is counts as broken, and it is asked
	 * for once only. */
	void (*on_piece)(void *arg, struct str piece);
	void *arg;
	const char *last_event; /* Last-Event-ID, or NULL */
};

struct answer {
	enum http_failure failure;
	const char *why; /* with HTTP_UNTRUSTED */
	int status;
	struct buf body;
	bool is_stream;         /* of events; whole */
	struct json_tree *tree; /* NULL when the body is no JSON */
	const struct json *json;
};

/* Waits for the answer. A question that got no answer because the connection broke is repeated (all of ours may be: a submission
 * carries a key). Returns the enum cli_exit the answer stands for, nothing being printed; or its negative when the question could not
 * be asked at all and that was said: cli_explain() makes an exit code of either. Always fills *answer: answer_fini() it. */
int cli_ask(struct cli *cli, const struct question *question, struct answer *answer);
/* Says on stderr why an answer of code != 0 came, and what to do; returns code. */
int cli_explain(const struct cli *cli, const struct answer *answer, int code);
void answer_fini(struct answer *answer);
/* --json: the body as it came, one line end behind it. */
void answer_print(const struct cli *cli, const struct answer *answer);
/* %XX for all but unreserved characters. */
void url_escape(struct str text, struct buf *out);
/* Where we ask, for messages. */
const char *cli_url(const struct cli *cli);

/* --- waiting for a task (follow.c) ----------------------------------------------------------------------------------- */

enum follow_mode {
	FOLLOW_QUIET,    /* nothing */
	FOLLOW_PROGRESS, /* one line on stderr, rewritten */
	FOLLOW_LINES,    /* a line a change on stderr; with --json each answer on stdout */
};
/* Returns when the task is done: its last answer in *answer (fini it) and what its verdict means as an enum cli_exit; or, after
 * saying why, another code with *answer not done. A judge that goes away is asked again for half a minute. */
int cli_follow(struct cli *cli, const char *id, enum follow_mode mode, struct answer *answer);
/* CLI_OK, CLI_NOT_ACCEPTED, or CLI_OURS. */
int verdict_exit(const struct json *task);
/* False, after saying so, when the text is no task id. */
bool cli_id_is_valid(const struct cli *cli, const char *id);

/* --- a submission (body.c) -------------------------------------------------------------------------------------------- */

/* The JSON of a submission as the arguments say, `languages` being the gateway's answer; 0, or CLI_USAGE after saying why. */
int submit_body(struct cli *cli, const struct json *languages, struct buf *out);
/* "250", "2s", "64MiB": what may stand behind --limit NAME=. False when it is none, or not for that name. */
bool limit_value(struct str name, struct str text, int64_t *out);

/* --- for people (render.c) -------------------------------------------------------------------------------------------- */

enum ink { INK_PLAIN, INK_GOOD, INK_BAD, INK_WARN, INK_DIM, INK_BOLD };

/* Text whose origin is not trusted: control characters and what is not UTF-8 shown as \xNN, so that no program's output reaches
 * the terminal as commands. `lines` keeps newlines and tabs. */
void text_safe(struct str text, bool lines, struct buf *out);
/* A string member, or {"base64"}: its bytes appended; false when it is neither. */
bool text_of(const struct json *node, struct buf *out);
void text_duration(int64_t us, struct buf *out); /* "1.48 ms" */
void text_bytes(int64_t bytes, struct buf *out); /* "640 KiB" */
/* A word in colour, as far as colours are on. */
void ink_add(const struct cli *cli, enum ink ink, struct str text, struct buf *out);
enum ink verdict_ink(struct str verdict);

/* A task; `output`: what was printed by every case (else only where there is one case). */
void render_task(const struct cli *cli, const struct json *task, bool output, struct buf *out);

/* Columns: a table row holds cells; widths are of the widest. */
struct table {
	struct buf cells; /* NUL-separated */
	unsigned columns;
};
void table_add(struct table *t, struct str cell); /* escaped; empty is shown as - */
void table_addf(struct table *t, const char *fmt, ...) printf_like(2, 3);
/* The first `columns` cells are the heading; verdicts and yes/no are coloured. */
void table_print(const struct cli *cli, const struct table *t, struct buf *out);
void table_fini(struct table *t);
void cli_print(const struct cli *cli, const struct buf *text);

/* A member as text, "" when absent or null; borrowed. */
struct str member(const struct json *object, const char *key);
int64_t member_i64(const struct json *object, const char *key);
/* {"name": [...]}: asks for `path`, prints the raw answer or the table `row` fills, a call an item. */
int cli_list(struct cli *cli, const char *path, const char *name, const char *const *headings,
	unsigned columns, void (*row)(struct table *t, const struct json *item));

/* --- texts from the tables (doc.c) -------------------------------------------------------------------------------------- */

void doc_help(const struct command *command, struct buf *out); /* NULL = of the whole program */
void doc_man(struct buf *out);                                 /* mdoc */
void doc_bash(struct buf *out);

/* --- this machine (machine.c) -------------------------------------------------------------------------------------------- */

/* The run directories there are on this machine (or --dir's, --run-dir's): each(arg, path). Count. */
unsigned machine_run_dirs(struct cli *cli, void (*each)(void *arg, const char *path), void *arg);
/* Where state is kept by default or by --dir; free(). NULL when there is no home. */
char *machine_state_dir(struct cli *cli);
enum lock_state { LOCK_FREE, LOCK_HELD, LOCK_UNREADABLE };
/* Whether somebody holds the advisory lock of the file; changes nothing. */
enum lock_state machine_lock_state(const char *path);

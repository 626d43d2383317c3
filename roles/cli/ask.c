/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ask - one question to the gateway, waited for.
 *
 * The URL is read once: its host (a name may be several addresses, resolved here, where blocking harms nobody) and a path before ours.
 * With https the certificate must name that host; there is no way around.
 * An address that refuses is left for the next; the one that answered stays. A connection that breaks before the answer is whole
 * is asked again, three times in all: each question of this client may be asked twice, a submission because it carries a key.
 * What an answer means for the exit code is decided here and nowhere else: 2xx done, 4xx we were wrong, 503 not now, other 5xx the judge
 * failed; and what is neither JSON nor such a status is no gateway.
 */
#include "roles/cli/cli_int.h"

#include <errno.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>

#include "reactor/base/clock.h"
#include "reactor/base/mem.h"
#include "reactor/loop.h"

#define TRIES 3
#define PAUSE_US (200 * US_PER_MS)
#define TIMEOUT_US (20 * US_PER_S)
#define TOKEN_MAX 4096
#define SILENCE_US (45 * US_PER_S) /* three heartbeats of a stream */

const char *cli_url(const struct cli *cli)
{
	const char *url = cli_value(cli, "--url");

	if (!url)
		url = cli->env->url;
	return url && *url ? url : CLI_URL;
}

/* --- where ------------------------------------------------------------------------------------------------------------ */

static void add_address(struct cli *cli, const struct addrinfo *info)
{
	char host[NI_MAXHOST], port[NI_MAXSERV];
	int flags = NI_NUMERICHOST | NI_NUMERICSERV;

	if (cli->n_addresses == CLI_ADDRESSES_MAX ||
		getnameinfo(info->ai_addr, info->ai_addrlen, host, sizeof(host), port, sizeof(port),
			flags) != 0)
		return;
	cli->addresses[cli->n_addresses++] =
		mem_printf(info->ai_family == AF_INET6 ? "[%s]:%s" : "%s:%s", host, port);
}

static int resolve(struct cli *cli, const char *host, const char *port)
{
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found = NULL;
	int error = getaddrinfo(host, port, &hints, &found);

	if (error)
		return cli_fail(cli, error == EAI_AGAIN ? CLI_UNREACHABLE : CLI_USAGE,
			"%s: cannot find host %s: %s; give --url http[s]://HOST:PORT", cli_url(cli),
			host, gai_strerror(error));
	for (const struct addrinfo *a = found; a; a = a->ai_next)
		add_address(cli, a);
	freeaddrinfo(found);
	if (!cli->n_addresses)
		return cli_fail(cli, CLI_USAGE, "%s: no usable address", cli_url(cli));
	return 0;
}

/* "http://" or "https://" or nothing; what is behind it, and whether it is TLS. */
static const char *cut_scheme(const char *url, bool *is_tls)
{
	*is_tls = strncmp(url, "https://", 8) == 0;
	return *is_tls ? url + 8 : strncmp(url, "http://", 7) == 0 ? url + 7 : url;
}

/* "HOST:PORT" -> cli->host, port (static text, or in cli->authority). NULL when it is neither. */
static const char *cut_port(struct cli *cli, const char *standard)
{
	char *colon = strrchr(cli->authority, ':');
	const char *port = standard;
	size_t n;

	if (colon && strchr(colon, ']'))
		colon = NULL;
	if (colon)
		port = colon + 1;
	n = colon ? (size_t)(colon - cli->authority) : strlen(cli->authority);
	if (n > 2 && cli->authority[0] == '[' && cli->authority[n - 1] == ']')
		cli->host = mem_dup(cli->authority + 1, n - 2);
	else
		cli->host = mem_dup(cli->authority, n);
	return *cli->host && *port && strspn(port, "0123456789") == strlen(port) ? port : NULL;
}

static int load_trust(struct cli *cli, bool is_tls)
{
	const char *file = cli_value(cli, "--cacert");
	char why[HTTP_TLS_WHY];

	if (!is_tls && file)
		return cli_fail(cli, CLI_USAGE, "%s: --cacert is for https:// only", cli_url(cli));
	if (is_tls && http_tls_client(file, &cli->tls, why))
		return cli_fail(cli, CLI_USAGE, "%s: %s",
			file ? file : "the certificates of this system", why);
	return 0;
}

/* "HOST", "HOST:PORT", "[IPV6]:PORT", with a path behind. */
static int read_url(struct cli *cli)
{
	bool is_tls;
	const char *url = cli_url(cli), *rest = cut_scheme(url, &is_tls), *end, *port;
	int rc;

	end = rest + strcspn(rest, "/?#");
	cli->prefix = mem_dup(end, strcspn(end, "?#"));
	for (size_t n = strlen(cli->prefix); n && cli->prefix[n - 1] == '/'; n--)
		cli->prefix[n - 1] = '\0';
	cli->authority = mem_dup(rest, (size_t)(end - rest));
	port = cut_port(cli, is_tls ? "443" : "80");
	if (!port)
		return cli_fail(cli, CLI_USAGE, "%s: not a URL like " CLI_URL, url);
	rc = load_trust(cli, is_tls);
	return rc ? rc : resolve(cli, cli->host, port);
}

static int set_token(struct cli *cli, struct str token)
{
	token = str_trim(token);
	for (size_t i = 0; i < token.n; i++) {
		if (token.p[i] <= ' ' || token.p[i] > '~')
			return cli_fail(
				cli, CLI_USAGE, "the token may hold printable characters only");
	}
	if (token.n)
		cli->authorization = mem_printf("Bearer " STR_FMT, STR_ARG(token));
	return 0;
}

static int read_token(struct cli *cli)
{
	const char *path = cli_value(cli, "--token-file");
	char line[TOKEN_MAX] = "";
	FILE *file;

	if (!path)
		return set_token(cli, str_from(cli->env->token));
	file = fopen(path, "re");
	if (!file)
		return cli_fail(cli, CLI_USAGE, "%s: %s", path, strerror(errno));
	if (!fgets(line, sizeof(line), file))
		line[0] = '\0';
	fclose(file);
	if (!line[0])
		return cli_fail(cli, CLI_USAGE, "%s: no token in it", path);
	return set_token(cli, str_from(line));
}

static int connect_once(struct cli *cli)
{
	struct http_client_options options = {0};
	int rc;

	if (cli->client)
		return 0;
	rc = read_url(cli);
	if (!rc)
		rc = read_token(cli);
	if (rc)
		return rc;
	options.tls = cli->tls;
	options.tls_name = cli->host;
	cli->client = http_client_new(cli_loop(cli), &options);
	return 0;
}

/* --- one try ------------------------------------------------------------------------------------------------------------ */

struct wait {
	struct answer *answer;
	bool over, stale;
	const struct question *question;
	struct loop *loop;
	int64_t heard_us; /* of a stream */
};

static void on_piece(void *arg, struct str piece)
{
	struct wait *wait = arg;

	wait->heard_us = loop_now_us(wait->loop);
	wait->question->on_piece(wait->question->arg, piece);
}

/* A stream that says nothing any more. */
static bool is_silent(const struct wait *wait)
{
	return wait->question->on_piece && loop_now_us(wait->loop) - wait->heard_us > SILENCE_US;
}

static void on_reply(void *arg, const struct http_reply *reply)
{
	struct wait *wait = arg;
	struct json_error error;

	wait->over = true;
	wait->stale = reply->stale;
	wait->answer->failure = reply->failure;
	wait->answer->why = reply->why;
	wait->answer->status = reply->status;
	if (reply->failure != HTTP_OK_REPLY)
		return;
	wait->answer->is_stream = str_is(reply->content_type, "text/event-stream");
	buf_add_str(&wait->answer->body, reply->body);
	if (json_parse(reply->body, NULL, &wait->answer->tree, &error) == 0)
		wait->answer->json = json_root(wait->answer->tree);
}

static unsigned fill_headers(struct cli *cli, const struct question *q)
{
	unsigned n = 0;

	cli->headers[n++] = (struct http_header){
		"Accept", q->on_piece ? "text/event-stream, application/json" : "application/json"};
	if (q->last_event)
		cli->headers[n++] = (struct http_header){"Last-Event-ID", q->last_event};
	if (q->body.p)
		cli->headers[n++] = (struct http_header){
			"Content-Type", q->type ? q->type : "application/json"};
	if (q->key)
		cli->headers[n++] = (struct http_header){"Idempotency-Key", q->key};
	if (cli->tls)
		cli->headers[n++] = (struct http_header){"Host", cli->authority};
	if (cli->authorization)
		cli->headers[n++] = (struct http_header){"Authorization", cli->authorization};
	return n;
}

/* 0, or a negative errno when the question could not be asked. */
static int try_once(struct cli *cli, const struct question *q, bool fresh, struct answer *answer)
{
	char *path cleanup(mem_freep) = mem_printf("%s%s", cli->prefix, q->path);
	const struct http_call call = {
		.address = cli->addresses[cli->address],
		.method = q->method,
		.path = path,
		.headers = cli->headers,
		.n_headers = fill_headers(cli, q),
		.body = q->body,
		.timeout_us = q->timeout_us ? q->timeout_us : TIMEOUT_US,
		.fresh = fresh,
		.on_piece = q->on_piece ? on_piece : NULL,
	};
	struct wait wait = {.answer = answer,
		.question = q,
		.loop = cli->loop,
		.heard_us = loop_now_us(cli->loop)};
	struct op *op = NULL;
	int rc = http_client_call(cli->client, &call, on_reply, &wait, &op);

	if (rc)
		return rc;
	while (!wait.over && !cli->interrupted && !is_silent(&wait))
		loop_turn(cli->loop, US_PER_S);
	if (!wait.over) {
		answer->failure = HTTP_TIMEOUT;
		op_cancel(&op);
	}
	return 0;
}

/* --- what it means ---------------------------------------------------------------------------------------------------------- */

static int code_of(const struct answer *answer)
{
	int status = answer->status;

	if (answer->failure != HTTP_OK_REPLY || (!answer->json && !answer->is_stream))
		return CLI_UNREACHABLE;
	if (status >= 200 && status < 300)
		return CLI_OK;
	if (status >= 400 && status < 500)
		return CLI_USAGE;
	return status < 500 || status == 503 ? CLI_UNREACHABLE : CLI_OURS;
}

/* Tries the addresses until one does not refuse. */
static int ask_around(struct cli *cli, const struct question *q, bool fresh, struct answer *answer)
{
	for (size_t i = 0; i < cli->n_addresses; i++) {
		int rc;

		answer_fini(answer);
		answer->failure = HTTP_REFUSED;
		rc = try_once(cli, q, fresh, answer);
		if (rc || cli->interrupted || answer->failure != HTTP_REFUSED)
			return rc;
		cli->address = (cli->address + 1) % cli->n_addresses;
	}
	return 0;
}

int cli_ask(struct cli *cli, const struct question *question, struct answer *answer)
{
	int rc;

	*answer = (struct answer){.failure = HTTP_REFUSED};
	rc = connect_once(cli);
	if (rc)
		return -rc; /* said already */
	for (int i = 0; i < TRIES; i++) {
		if (i && !cli_pause(cli, PAUSE_US))
			break;
		rc = ask_around(cli, question, i > 0, answer);
		if (rc)
			return cli_fail(
				cli, -CLI_OURS, "the question cannot be asked: %s", strerror(-rc));
		if (cli->interrupted || answer->failure != HTTP_BROKEN || question->on_piece)
			break;
	}
	return cli->interrupted ? CLI_INTERRUPTED : code_of(answer);
}

void answer_fini(struct answer *answer)
{
	buf_fini(&answer->body);
	json_free(answer->tree);
	*answer = (struct answer){0};
}

void answer_print(const struct cli *cli, const struct answer *answer)
{
	struct str text = str_trim(buf_str(&answer->body));

	fwrite(text.p, 1, text.n, cli->env->out);
	fputc('\n', cli->env->out);
	fflush(cli->env->out);
}

/* --- in words ---------------------------------------------------------------------------------------------------------------- */

static const struct {
	enum http_failure failure;
	const char *words;
} failures[] = {
	{HTTP_REFUSED, "nobody listens there"},
	{HTTP_TIMEOUT, "no answer in time"},
	{HTTP_BROKEN, "the connection broke before the answer was whole"},
	{HTTP_TOO_LARGE, "the answer is too large"},
	{HTTP_UNTRUSTED, "the gateway is not to be trusted, nothing was sent to it"},
};

static const struct {
	const char *code, *advice;
} advices[] = {
	{"bad_host", "the gateway does not know this name: ask by address, or add the name to its "
		     "gateway.hosts"},
	{"bad_id", "an id is 24 hexadecimal digits: conclave list shows them"},
	{"disk_full", "make room in the judge's data directory; nothing that was accepted is lost"},
	{"https_expected", "say https:// in --url or CONCLAVE_URL"},
	{"missing_source", "name a source file, or give --command"},
	{"no_judicator", "the gateway runs but finds no judicator: conclave services, or its log"},
	{"not_found", "this gateway does not know that path: is it of another version?"},
	{"task_conflict", "that --key was used for another task: take a new one"},
	{"task_done", "the task had ended already: conclave get ID shows how"},
	{"task_unknown", "there is no such task: conclave list shows which there are"},
	{"unknown_language", "conclave languages lists those there are"},
};

static void advise(const struct cli *cli, const char *code, int status)
{
	for (size_t i = 0; i < ARRAY_SIZE(advices); i++) {
		if (strcmp(advices[i].code, code) == 0) {
			fprintf(cli->env->err, "  %s\n", advices[i].advice);
			return;
		}
	}
	if (status == 401 || status == 403)
		fprintf(cli->env->err,
			"  this needs a token that allows it: set CONCLAVE_TOKEN, or give "
			"--token-file\n");
	else if (status == 429 || status == 503)
		fprintf(cli->env->err, "  try again in a moment\n");
}

static int explain_problem(const struct cli *cli, const struct answer *answer, int code)
{
	struct str detail = member(answer->json, "detail"), name = member(answer->json, "code");
	struct str pointer = member(answer->json, "pointer");
	struct buf text cleanup(buf_fini) = BUF_INIT;

	if (!detail.n)
		detail = member(answer->json, "title");
	text_safe(detail, false, &text);
	if (pointer.n) {
		buf_add_str(&text, STR(" (at "));
		text_safe(pointer, false, &text);
		buf_add_char(&text, ')');
	}
	cli_fail(cli, code, "%d " STR_FMT ": " STR_FMT, answer->status, STR_ARG(name),
		STR_ARG(buf_str(&text)));
	advise(cli, name.p ? name.p : "", answer->status);
	return code;
}

int cli_explain(const struct cli *cli, const struct answer *answer, int code)
{
	if (code <= 0)
		return -code; /* said already */
	if (code == CLI_INTERRUPTED)
		return code;
	if (answer->failure == HTTP_OK_REPLY && answer->json && answer->status >= 400)
		return explain_problem(cli, answer, code);
	if (answer->failure == HTTP_OK_REPLY)
		return cli_fail(cli, code,
			"%s: what answers there (HTTP %d) is no Conclave gateway; see --url",
			cli_url(cli), answer->status);
	for (size_t i = 0; i < ARRAY_SIZE(failures); i++)
		if (failures[i].failure == answer->failure)
			cli_fail(cli, code, "%s: %s%s%s", cli_url(cli), failures[i].words,
				answer->why ? ": " : "", answer->why ? answer->why : "");
	if (answer->failure == HTTP_UNTRUSTED) {
		fprintf(cli->env->err,
			"  its certificate must name %s and be certified by somebody this system "
			"trusts, or by --cacert FILE; for plain HTTP say http://\n",
			cli->host);
		return code;
	}
	fprintf(cli->env->err,
		"  start a judge here: judicator --standalone; name one elsewhere: --url "
		"or CONCLAVE_URL; what is wrong here: conclave doctor\n");
	return code;
}

void url_escape(struct str text, struct buf *out)
{
	for (size_t i = 0; i < text.n; i++) {
		unsigned char c = (unsigned char)text.p[i];
		bool plain = (c >= '0' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'z') ||
			     c == '-' || c == '.' || c == '_' || c == '~';

		buf_addf(out, plain ? "%c" : "%%%02X", c);
	}
}

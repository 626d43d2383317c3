/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lists - what else people and programs look at: executors, judicators, languages, the last hour, health. Each is one question to a judicator
 * and its answer in other words; a row of `lists` says which question and who words it.
 */
#include "roles/gateway/gateway_int.h"

#include "cfg/language.h"

#define HEALTH_BUDGET_US (2 * US_PER_S)

typedef void list_write_fn(struct visit *v, const void *reply, struct json_writer *w);

static void write_str(struct json_writer *w, const char *key, struct str text)
{
	json_key(w, key);
	json_bytes(w, text.n ? text : STR_NULL);
}

static void write_int(struct json_writer *w, const char *key, int64_t value)
{
	json_key(w, key);
	json_int(w, value);
}

static void write_bool(struct json_writer *w, const char *key, bool value)
{
	json_key(w, key);
	json_bool(w, value);
}

/* --- executors, judicators ---------------------------------------------------------------------------------------- */

static void write_executor(const struct msg_executor_view *e, struct json_writer *w)
{
	json_begin_object(w);
	write_str(w, "name", e->name);
	write_bool(w, "alive", !e->dead);
	write_int(w, "slots", e->slots);
	write_int(w, "running", e->running);
	write_int(w, "vacant", e->vacant);
	json_key(w, "languages");
	json_begin_array(w);
	for (size_t i = 0; i < e->languages.count; i++)
		json_bytes(w, *codec_item(e->languages, struct str, i));
	json_end_array(w);
	json_key(w, "toolchains");
	if (e->toolchains.node)
		json_node(w, e->toolchains.node);
	else
		json_null(w);
	write_str(w, "isolation", e->isolation);
	write_str(w, "version", e->version);
	view_time(w, "seen", e->seen_us);
	json_end_object(w);
}

static void write_executors(struct visit *v, const void *data, struct json_writer *w)
{
	const struct msg_executors_reply *reply = data;

	json_key(w, "executors");
	json_begin_array(w);
	for (size_t i = 0; i < reply->executors.count; i++)
		write_executor(codec_item(reply->executors, struct msg_executor_view, i), w);
	json_end_array(w);
}

static void write_judicators(struct visit *v, const void *data, struct json_writer *w)
{
	const struct msg_judicators_reply *reply = data;

	json_key(w, "judicators");
	json_begin_array(w);
	for (size_t i = 0; i < reply->judicators.count; i++) {
		const struct msg_judicator_view *j =
			codec_item(reply->judicators, struct msg_judicator_view, i);

		json_begin_object(w);
		write_str(w, "name", j->name);
		write_str(w, "address", j->address);
		write_bool(w, "leading", j->leading);
		write_str(w, "store", j->store);
		write_str(w, "version", j->version);
		json_end_object(w);
	}
	json_end_array(w);
}

/* --- languages: the profiles, and who offers them --------------------------------------------------------------------- */

static bool offers(const struct msg_executor_view *e, const char *language)
{
	for (size_t i = 0; i < e->languages.count; i++) {
		if (str_is(*codec_item(e->languages, struct str, i), language))
			return !e->dead;
	}
	return false;
}

static void write_offers(
	const struct msg_executors_reply *reply, const char *language, struct json_writer *w)
{
	json_key(w, "executors");
	json_begin_array(w);
	for (size_t i = 0; i < reply->executors.count; i++) {
		const struct msg_executor_view *e =
			codec_item(reply->executors, struct msg_executor_view, i);
		const struct json *version = json_get(e->toolchains.node, language);

		if (!offers(e, language))
			continue;
		json_begin_object(w);
		write_str(w, "name", e->name);
		write_str(w, "version",
			version && version->type == JSON_STRING ? version->text : STR_NULL);
		json_end_object(w);
	}
	json_end_array(w);
}

static void write_languages(struct visit *v, const void *data, struct json_writer *w)
{
	json_key(w, "languages");
	json_begin_array(w);
	map_each (it, v->g->languages) {
		const struct language *l = map_entry_of(it)->value;

		json_begin_object(w);
		write_str(w, "name", str_from(l->name));
		write_str(w, "title", str_from(l->title));
		write_str(w, "source", str_from(l->source));
		json_key(w, "extensions");
		json_begin_array(w);
		for (char **extension = l->extensions; extension && *extension; extension++)
			json_text(w, *extension);
		json_end_array(w);
		write_bool(w, "compiled", l->compile != NULL);
		write_offers(data, l->name, w);
		json_end_object(w);
	}
	json_end_array(w);
}

/* --- health ---------------------------------------------------------------------------------------------------------- */

static void write_health(struct visit *v, const void *data, struct json_writer *w)
{
	const struct msg_ping_reply *reply = data;

	write_str(w, "status", STR("ok"));
	write_str(w, "version", STR(CONCLAVE_VERSION));
	write_str(w, "judicator", reply->name);
	write_int(w, "pending", reply->pending);
	write_int(w, "waiting", v->g->waiters.count);
}

/* --- the last hour ------------------------------------------------------------------------------------------------------ */

static const struct {
	const char *name;
	size_t offset;
} series[] = {
	{"accepted", offsetof(struct msg_stats_minute, accepted)},
	{"added", offsetof(struct msg_stats_minute, added)},
	{"done", offsetof(struct msg_stats_minute, done)},
	{"pending", offsetof(struct msg_stats_minute, pending)},
	{"running", offsetof(struct msg_stats_minute, running)},
};

/* What is not known is null. */
static void write_series(const struct msg_stats_reply *reply, size_t offset, struct json_writer *w)
{
	json_begin_array(w);
	for (size_t i = 0; i < reply->minutes.count; i++) {
		const char *minute =
			(const char *)codec_item(reply->minutes, struct msg_stats_minute, i);
		int64_t value;

		memcpy(&value, minute + offset, sizeof(value));
		if (value < 0)
			json_null(w);
		else
			json_int(w, value);
	}
	json_end_array(w);
}

static void write_stats(struct visit *v, const void *data, struct json_writer *w)
{
	const struct msg_stats_reply *reply = data;

	view_time(w, "time", reply->time_us);
	view_time(w, "start", reply->start_us);
	write_int(w, "step_s", 60);
	for (size_t i = 0; i < ARRAY_SIZE(series); i++) {
		json_key(w, series[i].name);
		write_series(reply, series[i].offset, w);
	}
	json_key(w, "now");
	json_begin_object(w);
	write_int(w, "pending", reply->pending);
	write_int(w, "running", reply->running);
	write_int(w, "slots", reply->slots);
	view_time(w, "oldest", reply->oldest_us);
	json_key(w, "executors");
	json_begin_object(w);
	write_int(w, "alive", reply->alive);
	write_int(w, "dead", reply->dead);
	json_end_object(w);
	json_end_object(w);
}

/* --- the rows ---------------------------------------------------------------------------------------------------------- */

enum list_kind { LIST_EXECUTORS, LIST_HEALTH, LIST_JUDICATORS, LIST_LANGUAGES, LIST_STATS };

static const struct {
	enum rpc_method method;
	int64_t budget_us;
	list_write_fn *write;
} lists[] = {
	[LIST_EXECUTORS] = {RPC_executors, READ_BUDGET_US, write_executors},
	[LIST_HEALTH] = {RPC_ping, HEALTH_BUDGET_US, write_health},
	[LIST_JUDICATORS] = {RPC_judicators, READ_BUDGET_US, write_judicators},
	[LIST_LANGUAGES] = {RPC_executors, READ_BUDGET_US, write_languages},
	[LIST_STATS] = {RPC_stats, READ_BUDGET_US, write_stats},
};

static void on_listed(void *arg, struct rpc_answer *answer)
{
	struct visit *v = arg;
	struct buf body cleanup(buf_fini) = BUF_INIT;
	struct json_writer *w;

	if (answer->failure != RPC_OK) {
		visit_problem(v, &answer->problem);
		return;
	}
	w = json_writer_new(&body, false);
	json_begin_object(w);
	lists[v->list].write(v, answer->reply, w);
	json_end_object(w);
	json_writer_free(w);
	visit_reply(v, 200, TYPE_JSON, buf_str(&body));
}

static void list_start(
	const struct route_match *match, struct http_request *http, enum list_kind list)
{
	struct visit *v = visit_new(match->arg, http);

	if (!v || !visit_is_plain(v))
		return;
	v->list = list;
	if (list == LIST_EXECUTORS)
		v->request.executors.dead = true; /* shown as not alive, until they are hidden */
	ask_start(&v->ask, v->g, lists[list].method, &v->request, lists[list].budget_us, on_listed,
		v);
}

void lists_on_executors(const struct route_match *match, struct http_request *http)
{
	list_start(match, http, LIST_EXECUTORS);
}

void lists_on_judicators(const struct route_match *match, struct http_request *http)
{
	list_start(match, http, LIST_JUDICATORS);
}

void lists_on_languages(const struct route_match *match, struct http_request *http)
{
	list_start(match, http, LIST_LANGUAGES);
}

void lists_on_health(const struct route_match *match, struct http_request *http)
{
	list_start(match, http, LIST_HEALTH);
}

void lists_on_stats(const struct route_match *match, struct http_request *http)
{
	list_start(match, http, LIST_STATS);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * http/server - HTTP/1.1 on libevhtp, with what that library leaves open closed here.
 *
 * A `conn` is one accepted connection, a `listener` one address (an evhtp_t each, because that library's listener is
 * one per context). A connection has at most one request at a time, embedded in it: no pipelining. Its states are in server_conn.c.
 *
 * This file is the server's life: listening, accepting, the limits, the end.
 */
#include "rpc/http/server_int.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <arpa/inet.h>

#include <event2/listener.h>

#include "rpc/http/address.h"

#define CONNECTIONS_MAX 20000
#define OVERLOAD_EXTRA 256 /* connections over the maximum that still hear their 503 */
#define BACKLOG 4096
#define WRITE_TIMEOUT_US (30 * US_PER_S)
#define ACCEPT_PAUSE_US (100 * US_PER_MS)
#define WRITE_BYTES ((size_t)1 << 20) /* at once; the default of 16 KiB is a turn each */
#define LINGER_BYTES ((uint64_t)64 << 20)

/* --- accepting --------------------------------------------------------------------------------------------------------- */

static evhtp_res on_pre_accept(evhtp_connection_t *ev, void *arg)
{
	struct listener *listener = arg;
	struct http_server *server = listener->server;

	if (server->dead || server->n_conns >= server->options.connections_max + OVERLOAD_EXTRA)
		return EVHTP_RES_ERROR;
	return EVHTP_RES_OK;
}

static void read_peer(const struct sockaddr *sa, char out[64])
{
	char host[INET6_ADDRSTRLEN] = "?";

	if (sa->sa_family == AF_INET) {
		const struct sockaddr_in *in = (const struct sockaddr_in *)sa;

		inet_ntop(AF_INET, &in->sin_addr, host, sizeof(host));
		snprintf(out, 64, "%s:%u", host, ntohs(in->sin_port));
	} else if (sa->sa_family == AF_INET6) {
		const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)sa;

		inet_ntop(AF_INET6, &in6->sin6_addr, host, sizeof(host));
		snprintf(out, 64, "[%s]:%u", host, ntohs(in6->sin6_port));
	}
}

static evhtp_res on_post_accept(evhtp_connection_t *ev, void *arg)
{
	struct listener *listener = arg;
	struct conn *conn;
	int on = 1;

	setsockopt(ev->sock, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	setsockopt(ev->sock, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
	fcntl(ev->sock, F_SETFD, FD_CLOEXEC);
	bufferevent_set_max_single_write(ev->bev, WRITE_BYTES);
	conn = conn_new(listener->server, ev);
	read_peer(ev->saddr, conn->peer);
	return EVHTP_RES_OK;
}

/* Out of descriptors: accepting again at once would spin. */
static void on_accept_error(struct evconnlistener *ev, void *arg)
{
	struct listener *listener = arg;

	log_warn(listener->server->options.log, "http_accept", "error=\"%s\"", strerror(errno));
	evconnlistener_disable(ev);
	timer_start(&listener->resume, ACCEPT_PAUSE_US);
}

static void on_accept_resume(void *arg)
{
	struct listener *listener = arg;

	if (listener->htp->server)
		evconnlistener_enable(listener->htp->server);
}

/* --- listening ------------------------------------------------------------------------------------------------------------ */

static int open_socket(const struct sockaddr *sa, socklen_t len)
{
	int on = 1, e;
	int fd = socket(sa->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return -errno;
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	if (sa->sa_family == AF_INET6)
		setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof(on));
	if (bind(fd, sa, len) == 0 && listen(fd, BACKLOG) == 0)
		return fd;
	e = errno;
	close(fd);
	return -e;
}

static unsigned socket_port(int fd)
{
	struct sockaddr_storage ss = {0};
	socklen_t len = sizeof(ss);

	if (getsockname(fd, (struct sockaddr *)&ss, &len))
		return 0;
	if (ss.ss_family == AF_INET6)
		return ntohs(((struct sockaddr_in6 *)&ss)->sin6_port);
	return ntohs(((struct sockaddr_in *)&ss)->sin_port);
}

uint64_t body_backstop(int64_t max)
{
	return 2 * (uint64_t)max + LINGER_BYTES;
}

static void configure(struct listener *listener)
{
	evhtp_t *htp = listener->htp;
	int64_t write_us = listener->server->options.write_timeout_us;
	const struct timeval write_timeout = {
		.tv_sec = write_us / US_PER_S, .tv_usec = write_us % US_PER_S};

	evhtp_set_bev_flags(htp, BEV_OPT_CLOSE_ON_FREE);
	evhtp_disable_flag(htp, EVHTP_FLAG_ENABLE_100_CONT); /* ours knows what is refused */
	evhtp_enable_flag(htp, EVHTP_FLAG_ENABLE_NODELAY);
	evhtp_set_timeouts(htp, NULL, &write_timeout);
	evhtp_set_max_body_size(htp, body_backstop(listener->server->options.body_max));
	evhtp_set_gencb(htp, parse_on_message, listener);
	evhtp_set_pre_accept_cb(htp, on_pre_accept, listener);
	evhtp_set_post_accept_cb(htp, on_post_accept, listener);
	evconnlistener_set_error_cb(htp->server, on_accept_error);
}

static void listener_close(struct listener *listener)
{
	int fd;

	timer_stop(&listener->resume);
	if (!listener->htp->server)
		return;
	fd = evconnlistener_get_fd(listener->htp->server);
	evhtp_unbind_socket(listener->htp);
	/* Whether the library closes it depends on how it was given; never close another's descriptor. */
	if (fcntl(fd, F_GETFD) != -1)
		close(fd);
}

int http_server_listen(struct http_server *server, const char *address)
{
	struct http_address parsed;
	int fd;

	if (!http_address_parse(address, &parsed))
		return -EINVAL;
	fd = open_socket((struct sockaddr *)&parsed.sockaddr, parsed.len);
	if (fd < 0)
		return fd;
	http_server_listen_fd(server, fd);
	return 0;
}

void http_server_listen_fd(struct http_server *server, int fd)
{
	struct listener *listener = mem_alloc(sizeof(*listener));

	listener->server = server;
	listener->port = socket_port(fd);
	timer_init(&listener->resume, server->loop, on_accept_resume, listener);
	listener->htp = evhtp_new(loop_event_base(server->loop), NULL);
	CHECK(listener->htp);
	CHECK(evhtp_accept_socket(listener->htp, fd, BACKLOG) == 0);
	configure(listener);
	tls_set_listener(listener);
	list_add_tail(&server->listeners, &listener->link);
}

int http_server_new(struct loop *loop, const char *address,
	const struct http_server_options *options, struct http_server **out)
{
	struct http_server *server = mem_alloc(sizeof(*server));
	int r;

	signal(SIGPIPE, SIG_IGN);
	server->loop = loop;
	server->options = *options;
	if (!server->options.connections_max)
		server->options.connections_max = CONNECTIONS_MAX;
	if (!server->options.write_timeout_us)
		server->options.write_timeout_us = WRITE_TIMEOUT_US;
	list_init(&server->listeners);
	list_init(&server->conns);
	r = address ? http_server_listen(server, address) : 0;
	if (r) {
		free(server);
		return r;
	}
	*out = server;
	return 0;
}

unsigned http_server_port(const struct http_server *server)
{
	if (list_is_empty(&server->listeners))
		return 0;
	return list_entry(server->listeners.next, struct listener, link)->port;
}

void http_server_set_limits(struct http_server *server, int64_t body_max, int64_t read_timeout_us)
{
	server->options.body_max = body_max;
	server->options.read_timeout_us = read_timeout_us;
	list_each (it, &server->listeners)
		evhtp_set_max_body_size(
			list_entry(it, struct listener, link)->htp, body_backstop(body_max));
	list_each (it, &server->conns) {
		struct conn *conn = list_entry(it, struct conn, link);

		evhtp_connection_set_max_body_size(conn->ev, body_backstop(body_limit(conn)));
	}
}

void http_server_stop_accepting(struct http_server *server)
{
	server->stopping = true;
	list_each (it, &server->listeners)
		listener_close(list_entry(it, struct listener, link));
}

unsigned http_server_open_requests(const struct http_server *server)
{
	return server->n_open;
}

uint64_t http_server_body_bytes(const struct http_server *server)
{
	return server->body_bytes;
}

static void server_destroy(void *arg)
{
	struct http_server *server = arg;
	struct list *first;

	while ((first = list_first(&server->conns)))
		evhtp_connection_free(list_entry(first, struct conn, link)->ev);
	while ((first = list_first(&server->listeners))) {
		struct listener *listener = list_entry(first, struct listener, link);

		list_del(&listener->link);
		evhtp_free(listener->htp);
		free(listener);
	}
	SSL_CTX_free(server->tls);
	buf_fini(&server->head);
	free(server->piece);
	free(server);
}

void http_server_free(struct http_server *server)
{
	if (!server || server->dead)
		return;
	server->dead = true;
	http_server_stop_accepting(server);
	list_each_safe (it, &server->conns)
		conn_lose(list_entry(it, struct conn, link));
	if (server->depth)
		loop_free_later(server->loop, server_destroy, server);
	else
		server_destroy(server);
}

#include "transport/sockets/stream_server_counters.h"

#include "platform/counter_table.h"

namespace bedplate {

void describe_acceptor(CounterTable& table, const AcceptorCounters& counters, const char* key,
                       const char* refused) {
  table
      .gauge("connections_open", counters.connections_open, "connections",
             "Clients that are connected.")
      .at_a_glance("clients");
  CounterDescription& peak = table.gauge("connections_peak", counters.connections_peak,
                                         "connections", "The most clients connected at once.");
  if (key != nullptr) peak.peak_of(key, "Further connections are closed at once.");
  table.counter("connections_total", counters.connections_total, "connections",
                "Clients that have connected.");
  CounterDescription& refusals =
      table.counter("connections_refused", counters.connections_refused, "connections", refused);
  if (key != nullptr) refusals.refusals_of(key);
  refusals.alert_as_it_grows(
      "{connections_refused} clients were refused so far, because too many are connected: end "
      "some, or plan for more (max_connections)");
}

void describe(CounterTable& table, const StreamServerCounters& counters, const char* key) {
  describe_acceptor(
      table, counters, key,
      "Connections closed at once: all planned ones were open, or the service drains.");
  CounterDescription& replaced =
      table.counter("connections_replaced", counters.connections_replaced, "connections",
                    "Idle connections closed because a new client came, and all were taken.");
  if (key != nullptr) replaced.refusals_of(key);
  replaced.alert_as_it_grows(
      "{connections_replaced} idle clients were disconnected for new ones so far, because too "
      "many are connected: end some, or plan for more (max_connections)");
  table
      .counter("connections_timed_out", counters.connections_timed_out, "connections",
               "Connections closed: the client sent no request, or was too slow to send one or "
               "to take its reply.")
      .no_alert("idle clients are disconnected by it, too");
  table
      .counter("connections_foreign", counters.connections_foreign, "connections",
               "Connections closed: the client spoke another protocol, such as HTTP; nothing of "
               "it was executed.")
      .alert_as_it_grows(
          "{connections_foreign} clients spoke another protocol so far, as a web page in a "
          "browser can: the log says from where");
  table.counter("received_bytes", counters.received_bytes, "bytes", "Bytes received from clients.")
      .at_a_glance("received");
  table.counter("sent_bytes", counters.sent_bytes, "bytes", "Bytes sent to clients.")
      .at_a_glance("sent");
  table.gauge("answers_waiting", counters.answers_waiting, "answers",
              "Answers to clients that wait for a file, another shard or a timer.");
  table
      .gauge("answers_late", counters.answers_late, "answers",
             "Answers of answers_waiting that the service has owed for longer than it planned.")
      .alert_from(1,
                  "{answers_late} of {answers_waiting} waiting answers are late: look at the file, "
                  "shard or peer that they wait for, and at the stalls in the log");
}

}  // namespace bedplate

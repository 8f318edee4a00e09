// A node of the station: a process that starts every service and runs those
// whose locks it gets.

#include "child.hpp"
#include "journal.hpp"
#include "locking.hpp"
#include "replication.hpp"
#include "reporter.hpp"
#include "services.hpp"
#include "station_options.hpp"

#include <caf/io/all.hpp>

#include <fmt/format.h>

#include <thread>

namespace {

using namespace scada;
using namespace std::chrono_literals;

// pawl's options stand next to the application's own.
struct station_config : pawl::config {
  explicit station_config(const station_options& options) {
    compat::add_types<caf::id_block::scada>(*this);
    name = options.name;
    listen = options.listen;
    peers = fmt::format("{}", fmt::join(options.peers, ","));
  }
};

class station {
public:
  station(caf::actor_system& system, const station_config& config,
          const station_options& options, const plant& layout, journal& log)
    : system_(system), options_(options), layout_(layout), log_(log),
      tell_(options.name), store_(layout.tags().size()), locks_(system, config),
      context_(make_context()) {
    // nop
  }

  /// False, with a sentence on stderr, if the port for tags is taken.
  bool open() {
    replicator_
      = system_.spawn<replicator>(options_.name, std::ref(store_),
                                  layout_.fingerprint(), options_.tag_peers);
    auto& [host, port] = options_.tag_listen;
    auto published
      = system_.middleman().publish(replicator_, port, host.c_str(), true);
    if (published)
      return true;
    fmt::print(stderr, "port {} of {}: {}\n", port, host,
               compat::render(system_, published.error()));
    compat::anon_send_exit(replicator_, caf::exit_reason::user_shutdown);
    return false;
  }

  void run() {
    for (auto& service : layout_.services())
      locks_.lead(service.name, [this, &service](caf::actor_system& system,
                                                 pawl::fencing_token epoch) {
        return start_service(system, context_, service, epoch);
      });
    auto start = now_ns();
    auto next = start;
    while (!stop_requested()
           && (options_.duration == 0
               || seconds(now_ns() - start) < options_.duration)) {
      std::this_thread::sleep_for(20ms);
      if (now_ns() < next)
        continue;
      next += 1'000'000'000;
      tell_.say("figures", figures());
    }
  }

  /// Stops everything; the last record says whether all locks are free.
  void stop() {
    locks_.stop_leading();
    wait_until([this] {
      return context_.running == 0
             && locks_.tag_figures().left == pawl::residue{}
             && locks_.service_figures().left == pawl::residue{};
    });
    compat::anon_send_exit(replicator_, caf::exit_reason::user_shutdown);
    log_.ended();
    auto last = figures();
    last["running"] = context_.running.load();
    last["services_scope"] = to_json(locks_.service_figures().left);
    last["tags_scope"] = to_json(locks_.tag_figures().left);
    tell_.say("final", std::move(last));
  }

private:
  station_context make_context() {
    return {.layout = layout_,
            .store = store_,
            .log = log_,
            .tell = tell_,
            .counters = counters_,
            .tags = locks_.tags(),
            .archive = options_.data / "archive",
            .poll_interval
            = std::chrono::milliseconds{options_.poll_milliseconds}};
  }

  template <class Predicate>
  static void wait_until(Predicate done) {
    for (auto end = now_ns() + 5'000'000'000; !done() && now_ns() < end;)
      std::this_thread::sleep_for(10ms);
  }

  nlohmann::json figures() {
    auto store = store_.figures();
    auto tags = locks_.tag_figures();
    return {{"written", store.written},
            {"replicated", store.replicated},
            {"stale_epoch", store.stale_epoch},
            {"overtaken", store.overtaken},
            {"operator_writes", counters_.operator_writes.load()},
            {"operator_failures", counters_.operator_failures.load()},
            {"lock_failures", counters_.lock_failures.load()},
            {"device_errors", counters_.device_errors.load()},
            {"archived", counters_.archived.load()},
            {"locked", tags.locked},
            {"waited", tags.waited},
            {"p99_lock_us", counters_.locks.take_p99() / 1e3},
            {"p99_wait_us", tags.p99_wait_ns / 1e3},
            {"ready", locks_.tags().ready_nodes()}};
  }

  static nlohmann::json to_json(const pawl::residue& x) {
    return {{"rows", x.rows},
            {"sessions", x.sessions},
            {"requests", x.requests},
            {"waits", x.waits}};
  }

  caf::actor_system& system_;
  const station_options& options_;
  const plant& layout_;
  journal& log_;
  reporter tell_;
  tag_store store_;
  station_counters counters_;
  locking locks_;
  station_context context_;
  caf::actor replicator_;
};

} // namespace

int main(int argc, char** argv) {
  station_options options;
  int code = 0;
  if (!parse(argc, argv, options, code))
    return code;
  if (!die_with_parent(options.parent))
    return 1;
  catch_stop_signals();
  std::error_code error;
  std::filesystem::create_directories(options.data, error);
  journal log{options.journal, options.name};
  if (error || !log.ok()) {
    fmt::print(stderr, "cannot make a new journal {}\n",
               options.journal.string());
    return 1;
  }
  compat::init_meta<caf::id_block::scada, caf::id_block::scada_local>();
  station_config config{options};
  if (auto why = config.read()) {
    fmt::print(stderr, "{}\n", *why);
    return 1;
  }
  caf::actor_system system{config};
  plant layout{options.plant};
  try {
    station node{system, config, options, layout, log};
    if (!node.open())
      return 1;
    node.run();
    node.stop();
  } catch (const pawl::node_error& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
}

// config: the configuration of an actor system that runs a pawl node.
//
// The options live in one group, `pawl.*`, next to the application's own: in
// --long-help (where CAF lists groups), on the command line, in a file. Derive
// from it to add yours.
//
//   struct my_config : pawl::config { ... };
//   my_config cfg;
//   if (auto why = cfg.read(argc, argv)) { complain(*why); return 1; }
//   if (pawl::compat::helptext_printed(cfg)) return 0;
//   caf::actor_system sys{cfg};

#pragma once

#define PAWL_CAF_IO
#include "pawl/actors/caf_compat.hpp"
#include "pawl/actors/scope_options.hpp"
#include "pawl/net/node_options.hpp"

#include <optional>
#include <string>

namespace pawl {

class config : public caf::actor_system_config {
public:
  /// Makes pawl's message types and options known, loads the network module.
  config();

  /// Reads the command line, checks pawl's options and passes the time-outs on
  /// to CAF. The text of the error, or nothing.
  std::optional<std::string> read(int argc, char** argv);

  /// The same for options that were set in code.
  std::optional<std::string> read();

  // -- the options, in the words of --long-help -------------------------------

  std::string name;
  std::string listen = "127.0.0.1:0";
  /// name=host:port,name=host:port,...
  std::string peers;
  caf::timespan node_timeout{std::chrono::milliseconds{2000}};
  caf::timespan heartbeat_interval{0};
  std::size_t window = 32;
  std::size_t max_waiters = scope_options{}.max_waiters;
  std::size_t probe_limit = scope_options{}.probe_limit;
  caf::timespan deadlock_grace{scope_options{}.deadlock_grace};

  /// The same as one value.
  [[nodiscard]] node_options node() const;

  /// What a scope of this node starts with.
  [[nodiscard]] scope_options scope() const;

private:
  void pass_on();
};

} // namespace pawl

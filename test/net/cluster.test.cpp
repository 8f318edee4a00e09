#include "pawl/net/cluster.hpp"

#include "pawl/actors/log.hpp"
#include "pawl/actors/type_ids.hpp"
#include "pawl/net/config.hpp"
#include "pawl/net/wire.hpp"
#include "pawl/test/support/free_port.hpp"
#include "pawl/test/support/sanitized.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <condition_variable>
#include <map>
#include <mutex>
#include <random>
#include <set>
#include <thread>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

using namespace pawl;
using namespace std::chrono_literals;
using pawl::testing::free_port;
using pawl::testing::sanitized;

namespace {

constexpr auto bound = 20s;

/// For cluster::awake: when a scope has exchanged its holds.
const std::vector<exchange_time> nothing_exchanged(3);

// -- ports --------------------------------------------------------------------

int loopback_socket(std::uint16_t port, bool listens) {
  int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(port);
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  auto* address = reinterpret_cast<sockaddr*>(&to);
  int done = listens ? ::bind(fd, address, sizeof(to))
                     : ::connect(fd, address, sizeof(to));
  if (listens && done == 0)
    done = ::listen(fd, 8);
  if (done != 0) {
    ::close(fd);
    return -1;
  }
  return fd;
}

// -- what is logged -----------------------------------------------------------

class log_reader {
public:
  log_reader() {
    set_log_sink([this](log_level, const std::string& text) {
      std::lock_guard lock{guard_};
      lines_.push_back(text);
      changed_.notify_all();
    });
  }

  ~log_reader() {
    set_log_sink({});
  }

  bool waits_for(const std::string& part) {
    std::unique_lock lock{guard_};
    return changed_.wait_for(lock, bound, [&] {
      for (auto& line : lines_)
        if (line.find(part) != std::string::npos)
          return true;
      return false;
    });
  }

  std::string all() {
    std::lock_guard lock{guard_};
    std::string result;
    for (auto& line : lines_)
      result += line + "\n";
    return result;
  }

private:
  std::mutex guard_;
  std::condition_variable changed_;
  std::vector<std::string> lines_;
};

// -- a listener that remembers ------------------------------------------------

class ear : public cluster_listener {
public:
  void link_up(node_slot peer, link_epoch epoch, incarnation who,
               fencing_token) override {
    change([&] {
      up[to_index(peer)] = epoch;
      incarnations[to_index(peer)] = who;
      ++ups;
    });
  }

  void link_down(node_slot peer, link_epoch epoch,
                 const std::string& why) override {
    change([&] {
      EXPECT_EQ(up[to_index(peer)], epoch);
      up.erase(to_index(peer));
      downs.push_back(why);
    });
  }

  void peer_rejected(node_slot, wire::reject_kind,
                     const std::string& why) override {
    change([&] { rejects.insert(why); });
  }

  void receive(node_slot peer, link_epoch epoch, const std::string& scope,
               message what) override {
    std::function<void(node_slot, link_epoch, const std::string&, message&)> f;
    {
      std::lock_guard lock{guard};
      EXPECT_EQ(up[to_index(peer)], epoch);
      f = on_message;
    }
    if (f)
      f(peer, epoch, scope, what);
    ++fresh[to_index(peer)];
  }

  void batch_received(node_slot peer) override {
    auto n = std::exchange(fresh[to_index(peer)], 0);
    change([&] { received[to_index(peer)] += n; });
  }

  template <class F>
  void change(F f) {
    std::lock_guard lock{guard};
    f();
    changed.notify_all();
  }

  template <class Condition>
  bool waits_until(Condition condition,
                   std::chrono::milliseconds limit = bound) {
    std::unique_lock lock{guard};
    return changed.wait_for(lock, limit, condition);
  }

  std::mutex guard;
  std::condition_variable changed;
  std::map<std::size_t, link_epoch> up;
  std::map<std::size_t, incarnation> incarnations;
  std::size_t ups = 0;
  std::vector<std::string> downs;
  std::set<std::string> rejects;
  std::map<std::size_t, std::size_t> received;
  /// Of the batch that is being received. By peer, each written by one link.
  std::array<std::size_t, max_nodes> fresh{};
  std::function<void(node_slot, link_epoch, const std::string&, message&)>
    on_message;
};

// -- a node: a system of its own ----------------------------------------------

struct station {
  explicit station(const node_options& x) : options(x) {
    cfg.node_timeout = x.node_timeout;
    cfg.read();
    compat::max_threads(cfg, 2);
    sys = std::make_unique<caf::actor_system>(cfg);
    auto plan = make_plan(x);
    if (auto* why = std::get_if<std::string>(&plan)) {
      error = *why;
      return;
    }
    auto made = cluster::start(*sys, std::get<cluster_plan>(plan), told);
    if (auto* why = std::get_if<std::string>(&made))
      error = *why;
    else
      net = std::move(std::get<0>(made));
  }

  ~station() {
    net.reset();
    sys.reset();
  }

  bool linked_with(std::size_t n, std::chrono::milliseconds limit = bound) {
    return told->waits_until([&] { return told->up.size() == n; }, limit);
  }

  node_options options;
  config cfg;
  std::shared_ptr<ear> told = std::make_shared<ear>();
  std::unique_ptr<caf::actor_system> sys;
  std::unique_ptr<cluster> net;
  std::string error;
};

using station_ptr = std::unique_ptr<station>;

/// Options for nodes of these names that know each other.
std::map<std::string, node_options> options_of(
  const std::vector<std::string>& names) {
  std::vector<std::string> peers;
  std::map<std::string, node_options> result;
  for (auto& name : names) {
    auto where = fmt::format("127.0.0.1:{}", free_port());
    peers.push_back(fmt::format("{}={}", name, where));
    result[name].name = name;
    result[name].listen = where;
  }
  for (auto& [name, x] : result)
    x.peers = peers;
  return result;
}

/// For tests that load a machine on which much else may run: nobody is found
/// silent for it.
std::map<std::string, node_options> unhurried(
  std::map<std::string, node_options> all) {
  for (auto& [name, x] : all) {
    x.node_timeout = 60s;
    x.heartbeat = 250ms;
  }
  return all;
}

/// All at the same moment.
std::map<std::string, station_ptr> start(
  const std::map<std::string, node_options>& all) {
  std::map<std::string, station_ptr> result;
  std::vector<std::thread> threads;
  for (auto& [name, x] : all)
    threads.emplace_back([&place = result[name], &options = x] {
      place = std::make_unique<station>(options);
    });
  for (auto& t : threads)
    t.join();
  return result;
}

raised_message numbered(std::uint64_t n) {
  return {{node_slot{0}, n}, 0};
}

/// Sends frames to whatever is published at a port, as a stranger.
struct stranger {
  stranger() {
    cfg.read();
    sys = std::make_unique<caf::actor_system>(cfg);
    self = std::make_unique<caf::scoped_actor>(*sys);
  }

  caf::actor door_at(std::uint16_t port) {
    auto x = sys->middleman().remote_actor("127.0.0.1", port);
    EXPECT_TRUE(bool{x});
    return x ? *x : caf::actor{};
  }

  void send(const caf::actor& to, wire::bytes frame) {
    compat::send(*self, to, compat::byte_vector{std::move(frame)});
  }

  config cfg;
  std::unique_ptr<caf::actor_system> sys;
  std::unique_ptr<caf::scoped_actor> self;
};

} // namespace

// -- options ------------------------------------------------------------------

TEST(node_options, a_wrong_value_is_named_with_its_option) {
  auto error = [](auto spoil) {
    node_options x;
    x.name = "a";
    x.listen = "127.0.0.1:4000";
    x.peers = {"b=127.0.0.1:4001"};
    spoil(x);
    auto plan = make_plan(x);
    auto* why = std::get_if<std::string>(&plan);
    return why != nullptr ? *why : std::string{"none"};
  };
  EXPECT_EQ(error([](auto&) {}), "none");
  EXPECT_EQ(error([](auto& x) { x.name = ""; }),
            "pawl.name = '': a node needs a name");
  EXPECT_EQ(error([](auto& x) { x.listen = "nowhere"; }),
            "pawl.listen = 'nowhere': expected host:port");
  EXPECT_EQ(error([](auto& x) { x.listen = "h:65536"; }),
            "pawl.listen = 'h:65536': expected host:port");
  EXPECT_EQ(error([](auto& x) { x.peers.push_back("c"); }),
            "pawl.peers = 'c': expected name=host:port");
  EXPECT_EQ(error([](auto& x) { x.peers.push_back("c=h:0"); }),
            "pawl.peers = 'c=h:0': expected name=host:port");
  EXPECT_EQ(error([](auto& x) { x.peers.push_back("b=h:1"); }),
            "pawl.peers = 'b=h:1': the name is in the list twice");
  EXPECT_EQ(error([](auto& x) { x.peers = {"b=127.0.0.1:4000"}; }),
            "pawl.peers = 'b=127.0.0.1:4000': this node listens there itself");
  EXPECT_EQ(error([](auto& x) { x.node_timeout = 1ms; }),
            "pawl.node-timeout = '1 ms': expected 40 ms to one hour");
  EXPECT_EQ(error([](auto& x) { x.heartbeat = 1s; }),
            "pawl.heartbeat-interval = '1000 ms': expected 5 ms to a quarter "
            "of pawl.node-timeout, which is 2000 ms");
  EXPECT_EQ(error([](auto& x) { x.window = 0; }),
            "pawl.window = '0': expected 1 to 65536");
}

TEST(node_options, slots_follow_the_sorted_names_and_the_own_entry_is_skipped) {
  node_options x;
  x.name = "m";
  x.listen = "127.0.0.1:1";
  x.peers = split_list("z=[::1]:9, m=127.0.0.1:1,a=h:2");
  auto plan = std::get<cluster_plan>(make_plan(x));
  EXPECT_EQ(plan.names, (std::vector<std::string>{"a", "m", "z"}));
  EXPECT_EQ(to_index(plan.self), 1u);
  EXPECT_EQ(to_string(plan.addresses[2]), "[::1]:9");
  EXPECT_EQ(plan.heartbeat, 250ms);
}

// -- up -----------------------------------------------------------------------

TEST(cluster, three_nodes_that_start_at_the_same_moment_are_linked) {
  auto all = start(options_of({"a", "b", "c"}));
  for (auto& [name, x] : all) {
    ASSERT_EQ(x->error, "");
    EXPECT_TRUE(x->linked_with(2, 5s)) << name;
  }
  // Both ends know the same epochs and each other's incarnation.
  auto& a = *all["a"];
  auto& c = *all["c"];
  EXPECT_EQ(a.net->epoch(node_slot{2}), c.net->epoch(node_slot{0}));
  EXPECT_EQ(a.told->incarnations[2], c.net->who());
  EXPECT_TRUE(a.net->heard(node_slot{2}));
  EXPECT_TRUE(a.net->awake(nothing_exchanged));
}

TEST(cluster, a_node_that_is_stopped_is_down_at_once_for_the_others) {
  for (bool quietly : {false, true}) {
    auto all = start(options_of({"a", "b", "c"}));
    for (auto& [name, x] : all)
      ASSERT_TRUE(x->linked_with(2)) << name;
    auto then = std::chrono::steady_clock::now();
    if (quietly)
      all["b"]->net->stop_quietly();
    all.erase("b");
    EXPECT_TRUE(all["a"]->linked_with(1, 1s));
    EXPECT_TRUE(all["c"]->linked_with(1, 1s));
    EXPECT_LT(std::chrono::steady_clock::now() - then, 1500ms);
    EXPECT_FALSE(all["a"]->net->heard(node_slot{1}));
    EXPECT_TRUE(all["a"]->net->awake(nothing_exchanged));
  }
}

TEST(cluster, a_node_that_comes_back_has_another_incarnation_and_epoch) {
  auto options = options_of({"a", "b"});
  auto all = start(options);
  auto& a = *all["a"];
  ASSERT_TRUE(a.linked_with(1));
  auto epoch = a.net->epoch(node_slot{1});
  auto who = a.told->incarnations[1];
  all.erase("b");
  ASSERT_TRUE(a.linked_with(0));
  auto again = std::make_unique<station>(options["b"]);
  ASSERT_EQ(again->error, "");
  ASSERT_TRUE(a.linked_with(1));
  EXPECT_NE(a.net->epoch(node_slot{1}), epoch);
  EXPECT_NE(a.told->incarnations[1], who);
  // What was meant for the old epoch goes nowhere, and harms nothing.
  a.net->send(node_slot{1}, epoch, "s", numbered(1));
  a.net->send(node_slot{1}, a.net->epoch(node_slot{1}), "s", numbered(2));
  ASSERT_TRUE(
    again->told->waits_until([&] { return again->told->received[0] > 0; }));
  EXPECT_EQ(again->told->received[0], 1u);
}

// -- messages -----------------------------------------------------------------

TEST(cluster, a_hundred_thousand_messages_from_four_threads_arrive_in_order) {
  auto all = start(unhurried(options_of({"a", "b"})));
  auto& a = *all["a"];
  auto& b = *all["b"];
  ASSERT_TRUE(a.linked_with(1));
  ASSERT_TRUE(b.linked_with(1));
  constexpr std::uint64_t each = 25'000;
  std::map<std::string, std::uint64_t> last;
  b.told->change([&] {
    b.told->on_message
      = [&](node_slot, link_epoch, const std::string& scope, message& x) {
          ASSERT_EQ(std::get<raised_message>(x).id.serial, ++last[scope]);
        };
  });
  auto epoch = a.net->epoch(node_slot{1});
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, scope = fmt::format("scope-{}", t)] {
      for (std::uint64_t i = 1; i <= each; ++i)
        a.net->send(node_slot{1}, epoch, scope, numbered(i));
    });
  for (auto& t : threads)
    t.join();
  EXPECT_TRUE(
    b.told->waits_until([&] { return b.told->received[0] == 4 * each; }));
  EXPECT_EQ(a.net->epoch(node_slot{1}), epoch);
}

TEST(cluster, floor_and_lamport_time_spread_by_themselves) {
  auto all = start(options_of({"a", "b"}));
  ASSERT_TRUE(all["a"]->linked_with(1));
  constexpr auto raised = fencing_token{1} << 60;
  all["a"]->net->raise_floor(raised);
  auto until = std::chrono::steady_clock::now() + bound;
  while (all["b"]->net->floor() < raised
         && std::chrono::steady_clock::now() < until)
    std::this_thread::yield();
  // It runs with the time, as counters may.
  EXPECT_GE(all["b"]->net->floor(), raised);
  EXPECT_LT(all["b"]->net->floor(), raised + fencing::reach(1h));
}

// -- who may speak ------------------------------------------------------------

TEST(cluster, nodes_that_do_not_fit_are_told_so_and_the_others_go_on) {
  auto options = options_of({"a", "b", "c"});
  options["c"].node_timeout = 3s;
  auto all = start(options);
  auto sentence = [](std::string_view x) {
    return fmt::format("node '{}' has a pawl.node-timeout of 2000 ms, node 'c' "
                       "of 3000 ms",
                       x);
  };
  for (std::string name : {"a", "b"}) {
    EXPECT_TRUE(all[name]->told->waits_until(
      [&] { return all[name]->told->rejects.contains(sentence(name)); }));
    EXPECT_TRUE(all["c"]->told->waits_until(
      [&] { return all["c"]->told->rejects.contains(sentence(name)); }));
    EXPECT_TRUE(all[name]->linked_with(1));
  }
}

TEST(cluster, lists_of_names_that_differ_are_told_on_both_sides) {
  log_reader log;
  auto options = options_of({"a", "b"});
  auto other = options["b"];
  other.peers.push_back("x=127.0.0.1:1");
  options["b"] = other;
  auto all = start(options);
  std::string sentence = "node 'a' lists the nodes a, b; node 'b' lists the "
                         "nodes a, b, x";
  for (auto& [name, x] : all)
    EXPECT_TRUE(
      x->told->waits_until([&] { return x->told->rejects.contains(sentence); }))
      << name << "\n"
      << log.all();
}

TEST(cluster, two_nodes_that_know_each_other_under_other_names_are_told) {
  log_reader log;
  auto a = options_of({"a", "b"});
  auto z = a["b"];
  z.name = "z";
  z.peers = {a["a"].peers[0], "z=" + z.listen};
  std::map<std::string, node_options> both{{"a", a["a"]}, {"z", z}};
  auto all = start(both);
  EXPECT_TRUE(log.waits_for("node 'z' is not among the nodes a, b of node 'a'"))
    << log.all();
  EXPECT_TRUE(all["z"]->told->waits_until([&] {
    return all["z"]->told->rejects.contains(
      "node 'z' is not among the nodes a, b of node 'a'");
  }));
}

TEST(cluster, a_name_in_use_is_refused_with_both_addresses) {
  auto options = options_of({"a", "b"});
  auto all = start(options);
  ASSERT_TRUE(all["a"]->linked_with(1));
  ASSERT_TRUE(all["b"]->linked_with(1));
  auto second = options["b"];
  second.listen = fmt::format("127.0.0.1:{}", free_port());
  station newcomer{second};
  ASSERT_EQ(newcomer.error, "");
  auto sentence = fmt::format("the name 'b' is in use: the node at {} answers "
                              "under it, so the one at {} is refused",
                              options["b"].listen, second.listen);
  EXPECT_TRUE(newcomer.told->waits_until(
    [&] { return newcomer.told->rejects.contains(sentence); }));
  EXPECT_EQ(all["a"]->told->ups, 1u);
  EXPECT_EQ(newcomer.told->ups, 0u);
}

TEST(cluster, a_port_in_use_is_an_error_before_anything_starts) {
  auto options = options_of({"a", "b"});
  auto first = std::make_unique<station>(options["a"]);
  ASSERT_EQ(first->error, "");
  station second{options["a"]};
  EXPECT_EQ(second.error.find(fmt::format("pawl.listen = '{}': cannot listen "
                                          "there",
                                          options["a"].listen)),
            0u)
    << second.error;
  EXPECT_EQ(second.net, nullptr);
}

// -- wrong input --------------------------------------------------------------

TEST(cluster, what_is_not_pawl_at_all_is_refused_and_the_others_go_on) {
  log_reader log;
  auto options = options_of({"a", "b"});
  auto a = std::make_unique<station>(options["a"]);
  // Bytes that are not CAF's, before and while the peers link.
  std::vector<int> sockets;
  std::mt19937 random{1};
  for (int i = 0; i < 20; ++i) {
    int fd = loopback_socket(a->net->port(), false);
    ASSERT_GE(fd, 0);
    std::string noise(i % 2 == 0 ? 10'000 : 3, '\0');
    for (auto& c : noise)
      c = static_cast<char>(random() & 0x7f);
    (void) !::send(fd, noise.data(), noise.size(), MSG_NOSIGNAL);
    sockets.push_back(fd);
  }
  // Messages at the door that are no hello.
  stranger s;
  auto door = s.door_at(a->net->port());
  s.send(door, {});
  s.send(door, wire::encode(wire::heartbeat{1, 0, 0, 0, 1, 0, false}));
  EXPECT_TRUE(log.waits_for("refused at its door 0 bytes: frame.kind at byte "
                            "0: the frame ends within it"))
    << log.all();
  EXPECT_TRUE(log.waits_for("refused at its door a heartbeat, where only hello "
                            "is expected"))
    << log.all();
  station b{options["b"]};
  EXPECT_TRUE(a->linked_with(1));
  for (int fd : sockets)
    ::close(fd);
}

TEST(cluster, a_peer_address_where_something_else_listens_is_survived) {
  auto options = options_of({"a", "b", "c"});
  auto colon = options["c"].listen.find(':');
  auto port = std::stoi(options["c"].listen.substr(colon + 1));
  // It accepts and says nothing.
  int silent = loopback_socket(static_cast<std::uint16_t>(port), true);
  ASSERT_GE(silent, 0);
  options.erase("c");
  auto all = start(options);
  EXPECT_TRUE(all["a"]->linked_with(1, 5s));
  EXPECT_TRUE(all["b"]->linked_with(1, 5s));
  ::close(silent);
}

TEST(cluster, ten_thousand_wrong_frames_inside_a_link_disturb_nobody) {
  log_reader log;
  auto options = unhurried(options_of({"a", "b", "c"}));
  // A peer of our own making: it shakes hands as 'c' and then talks nonsense.
  auto c = options["c"];
  options.erase("c");
  auto all = start(options);
  auto& a = *all["a"];
  ASSERT_TRUE(a.linked_with(1));
  stranger s;
  auto door = s.door_at(a.net->port());
  wire::hello hello;
  hello.self.name = "c";
  hello.self.called = "a";
  hello.self.names = {"a", "b", "c"};
  hello.self.fingerprint = caf::id_block::pawl_compat::begin;
  hello.self.who = {7, 7};
  hello.self.address = c.listen;
  hello.self.node_timeout_ms
    = static_cast<std::uint32_t>(c.node_timeout.count());
  hello.self.heartbeat_ms = 250;
  hello.self.window = 32;
  hello.nonce = 1;
  s.send(door, wire::encode(hello));
  // 'a' has the smaller slot: it asks, we offer.
  caf::actor link;
  std::uint64_t nonce = 0;
  auto& self = *s.self;
  while (nonce == 0) {
    bool got = false;
    self->receive(
      [&](const compat::byte_vector& x) {
        got = true;
        auto y = wire::decode(x.bytes);
        if (auto* h = std::get_if<wire::hello>(&std::get<0>(y))) {
          nonce = h->nonce;
          link = caf::actor_cast<caf::actor>(self->current_sender());
        }
      },
      caf::after(bound) >> [&] {});
    ASSERT_TRUE(got) << log.all();
  }
  link_epoch epoch = 99;
  s.send(link, wire::encode(wire::welcome{hello.self, nonce, epoch}));
  ASSERT_TRUE(a.linked_with(2)) << log.all();

  // Meanwhile b and a talk all the time.
  std::atomic<bool> enough = false;
  std::thread talk{[&] {
    auto e = a.net->epoch(node_slot{1});
    for (std::uint64_t i = 0; !enough; ++i) {
      a.net->send(node_slot{1}, e, "s", numbered(i));
      std::this_thread::sleep_for(1ms);
    }
  }};
  wire::batch_writer good;
  ASSERT_TRUE(good.add("s", message{numbered(1)}));
  auto frame = good.finish(epoch, 1, 0, 0);
  std::mt19937_64 random{3};
  for (int i = 0; i < (sanitized ? 1'000 : 10'000); ++i) {
    auto bad = frame;
    switch (i % 4) {
      case 0:
        bad.resize(random() % bad.size());
        break;
      case 1:
        for (auto& x : bad)
          x = static_cast<std::byte>(random());
        break;
      case 2:
        bad.push_back(static_cast<std::byte>(random()));
        break;
      default:
        // A whole frame of an epoch that is not: refused, and answered.
        bad = wire::encode(wire::ack{100 + random() % 1000, 1});
    }
    s.send(link, std::move(bad));
    // It is alive, after all.
    if (i % 100 == 0)
      s.send(link,
             wire::encode(wire::heartbeat{
               epoch, 0, 0, 0, static_cast<std::uint64_t>(i) + 1, 0, false}));
  }
  // It is the same link still.
  s.send(link, frame);
  EXPECT_TRUE(a.told->waits_until([&] { return a.told->received[2] == 1; }));
  EXPECT_EQ(a.net->epoch(node_slot{2}), epoch);
  EXPECT_TRUE(log.waits_for("node 'a', peer 'c' at")) << log.all();
  EXPECT_TRUE(log.waits_for("refused a frame of")) << log.all();
  auto before = all["b"]->told->received[0];
  EXPECT_TRUE(all["b"]->told->waits_until(
    [&] { return all["b"]->told->received[0] > before; }));
  enough = true;
  talk.join();
  EXPECT_TRUE(all["b"]->told->downs.empty());
  // The same frame under an epoch that has ended: refused, and its sender told.
  s.send(link, wire::encode(wire::goodbye{epoch, "enough"}));
  EXPECT_TRUE(a.linked_with(1));
  s.send(link, frame);
  bool told = false;
  bool more = true;
  while (!told && more)
    self->receive(
      [&](const compat::byte_vector& x) {
        auto y = wire::decode(x.bytes);
        auto* bye = std::get_if<wire::goodbye>(&std::get<0>(y));
        told = bye != nullptr && bye->epoch == epoch
               && bye->why == "this epoch is closed";
      },
      caf::after(bound) >> [&] { more = false; });
  EXPECT_TRUE(told);
  EXPECT_EQ(a.told->received[2], 1u);
}

TEST(cluster, a_host_that_swallows_connects_delays_nobody) {
  auto options = options_of({"a", "b", "c"});
  auto colon = options["c"].listen.find(':');
  auto port = std::stoi(options["c"].listen.substr(colon + 1));
  // The queue of connections is full: further ones get no answer at all.
  int full = loopback_socket(static_cast<std::uint16_t>(port), true);
  ASSERT_GE(full, 0);
  ::listen(full, 0);
  std::vector<int> waiting;
  for (int i = 0; i < 4; ++i) {
    int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(static_cast<std::uint16_t>(port));
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    (void) ::connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof(to));
    waiting.push_back(fd);
  }
  options.erase("c");
  auto all = start(options);
  EXPECT_TRUE(all["a"]->linked_with(1, 5s));
  EXPECT_TRUE(all["b"]->linked_with(1, 5s));
  auto then = std::chrono::steady_clock::now();
  all.clear();
  EXPECT_LT(std::chrono::steady_clock::now() - then, 2s);
  for (int fd : waiting)
    ::close(fd);
  ::close(full);
}

// What do the next 100 locks cost a session that holds many already?
//
// A session holds 0, 100, 10,000 or 100,000 terms and takes 100 more, one by
// one, then gives those back, again and again. Warm: always the same 100 terms.
// Fresh: terms that were never locked before. Locking and releasing are timed
// apart; a figure is the median of all rounds, in nanoseconds a lock. All sizes
// take turns in each round, so that the machine's moods fall on all alike; each
// has a scope of its own.
//
// The aim: warm at 100,000 held at most 1.2 times warm at 0. What fresh terms
// cost beside is mostly cache misses of a larger table.
//
// The check: all were granted and released, nothing is left in the scopes.

#include "bench/measure.hpp"

#include <pawl/actors/scope.hpp>
#include <pawl/actors/type_ids.hpp>

#include <deque>
#include <optional>

namespace bench {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t more = 100;

struct config : caf::actor_system_config {
  config() {
    pawl::compat::add_types<caf::id_block::pawl_actors>(*this);
  }
};

/// A session that holds many terms.
class holder {
public:
  holder(caf::actor_system& system, std::size_t held)
    : tags_(pawl::open_local_scope(system, "held-" + std::to_string(held))) {
    if (!tags_.wait_ready(10s))
      throw std::runtime_error("the scope was not ready after ten seconds");
    session_.emplace(tags_.attach());
    held_.reserve(held);
    for (std::size_t i = 0; i < held; ++i)
      held_.push_back(take(fmt::format("held/{:08}", i)));
    for (std::size_t i = 0; i < more; ++i)
      warm_.push_back(fmt::format("warm/{:08}", i));
    next_.reserve(more);
  }

  void warm() {
    round(warm_, warm_lock_, warm_release_);
  }

  void fresh() {
    std::vector<std::string> terms;
    for (std::size_t i = 0; i < more; ++i)
      terms.push_back(fmt::format("new/{:08}", used_++));
    round(terms, fresh_lock_, fresh_release_);
  }

  [[nodiscard]] json figures() const {
    json result;
    result["warm_lock_ns"] = median(warm_lock_);
    result["warm_release_ns"] = median(warm_release_);
    result["fresh_lock_ns"] = median(fresh_lock_);
    result["fresh_release_ns"] = median(fresh_release_);
    return result;
  }

  /// Gives everything back. Whether all was as it should be.
  [[nodiscard]] bool end() {
    auto good = good_ && tags_.residue().rows == held_.size();
    held_.clear();
    session_->end();
    session_.reset();
    good = good && tags_.residue() == pawl::residue{};
    tags_.close();
    return good;
  }

private:
  pawl::lock take(const std::string& what) {
    auto held = session_->lock(what, pawl::exclusive).wait();
    good_ = good_ && held.has_value();
    return held ? std::move(*held) : pawl::lock{};
  }

  void round(const std::vector<std::string>& terms,
             std::vector<double>& lock_ns, std::vector<double>& release_ns) {
    auto start = now_ns();
    for (const auto& x : terms)
      next_.push_back(take(x));
    auto middle = now_ns();
    for (auto& x : next_)
      good_ = x.release() == pawl::release_result::released && good_;
    auto end = now_ns();
    next_.clear();
    lock_ns.push_back(static_cast<double>(middle - start) / more);
    release_ns.push_back(static_cast<double>(end - middle) / more);
  }

  pawl::scope tags_;
  std::optional<pawl::session> session_;
  std::vector<pawl::lock> held_;
  std::vector<pawl::lock> next_;
  std::vector<std::string> warm_;
  std::uint64_t used_ = 0;
  bool good_ = true;
  std::vector<double> warm_lock_;
  std::vector<double> warm_release_;
  std::vector<double> fresh_lock_;
  std::vector<double> fresh_release_;
};

} // namespace
} // namespace bench

int main(int argc, char** argv) {
  CLI::App app{"The next 100 locks of a session that holds many"};
  std::vector<std::size_t> sizes{0, 100, 10'000, 100'000};
  std::size_t rounds = 2'000;
  auto tiny = false;
  bench::report out{"escalation"};
  app.add_option("--held", sizes, "how many are held already")->delimiter(',');
  app.add_option("--rounds", rounds, "of 100 locks, for each size");
  app.add_flag("--tiny", tiny, "only that it works");
  out.options(app);
  CLI11_PARSE(app, argc, argv);
  if (tiny) {
    sizes = {0, 1'000};
    rounds = 20;
  }
  pawl::compat::init_meta<caf::id_block::pawl_actors>();
  bench::config cfg;
  caf::actor_system system{cfg};
  std::deque<bench::holder> all;
  for (auto x : sizes)
    all.emplace_back(system, x);
  for (std::size_t i = 0; i < rounds; ++i) {
    // Four times: the first finds the caches full of the others' terms, and the
    // median is not it.
    for (auto& x : all)
      for (int turn = 0; turn < 4; ++turn)
        x.warm();
    for (auto& x : all)
      x.fresh();
  }
  std::optional<double> base;
  for (std::size_t i = 0; i < all.size(); ++i) {
    auto figures = all[i].figures();
    auto warm = figures["warm_lock_ns"].get<double>();
    if (!base)
      base = warm;
    figures["warm_to_first"] = *base > 0 ? warm / *base : 0.0;
    auto good = all[i].end();
    out.row("pawl", {{"held", sizes[i]}}, std::move(figures), good);
  }
  return out.status();
}

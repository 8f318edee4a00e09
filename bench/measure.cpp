#include "bench/measure.hpp"

#include <algorithm>
#include <cstdio>
#include <fstream>

#include <sys/resource.h>

namespace bench {

// -- durations ----------------------------------------------------------------

namespace {

std::uint64_t upper_bound(std::size_t bucket) noexcept {
  if (bucket < histogram::steps)
    return bucket;
  auto power = bucket / histogram::steps + histogram::step_bits - 1;
  auto width = std::uint64_t{1} << (power - histogram::step_bits);
  return (std::uint64_t{1} << power) + (bucket % histogram::steps + 1) * width
         - 1;
}

} // namespace

json histogram::figures() const {
  auto n = count();
  json result;
  result["mean_us"]
    = n == 0 ? 0.0
             : static_cast<double>(sum_.load()) / 1e3 / static_cast<double>(n);
  result["p50_us"] = quantile(n, 0.5);
  result["p95_us"] = quantile(n, 0.95);
  result["p99_us"] = quantile(n, 0.99);
  result["max_us"] = static_cast<double>(max_.load()) / 1e3;
  return result;
}

json histogram::pack() const {
  json result;
  result["sum"] = sum_.load();
  result["max"] = max_.load();
  auto& to = result["counts"] = json::array();
  for (std::size_t i = 0; i < buckets; ++i)
    if (auto n = counts_[i].load(); n != 0)
      to.push_back({i, n});
  return result;
}

void histogram::add(const json& packed) {
  bump(sum_, packed.at("sum").get<std::uint64_t>());
  max_.store(std::max(max_.load(), packed.at("max").get<std::uint64_t>()));
  for (const auto& x : packed.at("counts"))
    bump(counts_.at(x.at(0).get<std::size_t>()), x.at(1).get<std::uint64_t>());
}

double histogram::quantile(std::uint64_t n, double q) const {
  auto rank = static_cast<std::uint64_t>(q * static_cast<double>(n));
  std::uint64_t seen = 0;
  for (std::size_t i = 0; i < buckets; ++i) {
    seen += counts_[i].load(std::memory_order_relaxed);
    if (seen > rank)
      return static_cast<double>(std::min(upper_bound(i), max_.load())) / 1e3;
  }
  return static_cast<double>(max_.load()) / 1e3;
}

// -- the process --------------------------------------------------------------

double cpu_seconds() {
  rusage x{};
  ::getrusage(RUSAGE_SELF, &x);
  auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec)
           + static_cast<double>(t.tv_usec) * 1e-6;
  };
  return seconds(x.ru_utime) + seconds(x.ru_stime);
}

// -- the report ---------------------------------------------------------------

namespace {

std::string text(const json& x) {
  if (x.is_number())
    return readable(x.get<double>());
  return x.is_string() ? x.get<std::string>() : x.dump();
}

} // namespace

double median(std::vector<double> xs) {
  if (xs.empty())
    return 0;
  std::sort(xs.begin(), xs.end());
  auto middle = xs.size() / 2;
  return xs.size() % 2 == 1 ? xs[middle] : (xs[middle - 1] + xs[middle]) / 2;
}

std::string readable(double x) {
  if (x >= 1000 || x <= -1000) {
    auto digits = fmt::format("{:.0f}", x);
    for (auto i = static_cast<int>(digits.size()) - 3; i > (x < 0 ? 1 : 0);
         i -= 3)
      digits.insert(static_cast<std::size_t>(i), ",");
    return digits;
  }
  return x == static_cast<double>(static_cast<long>(x))
           ? fmt::format("{:.0f}", x)
           : fmt::format("{:.3g}", x);
}

void report::options(CLI::App& app) {
  app.add_option("--json", file_, "append the figures to this file, too");
}

void report::row(const std::string& subject, json where, json figures,
                 bool good, const std::string& lacks) {
  good_ = good_ && good;
  auto line = fmt::format("{:<28}", subject);
  for (const auto& [key, x] : where.items())
    line += fmt::format(" {}={}", key, text(x));
  line += "\n    ";
  for (const auto& [key, x] : figures.items())
    line += fmt::format(" {} {}", key, text(x));
  fmt::print("{}\n     check: {}{}\n", line, good ? "good" : "BAD",
             lacks.empty() ? "" : "; lacks: " + lacks);
  std::fflush(stdout);
  append({{"bench", bench_},
          {"subject", subject},
          {"where", std::move(where)},
          {"figures", std::move(figures)},
          {"good", good},
          {"lacks", lacks}});
}

void report::absent(const std::string& subject, const std::string& why) {
  fmt::print("{:<28} absent: {}\n", subject, why);
  std::fflush(stdout);
  append({{"bench", bench_}, {"subject", subject}, {"absent", why}});
}

void report::append(const json& x) const {
  if (file_.empty())
    return;
  std::ofstream out{file_, std::ios::app};
  out << x.dump() << '\n';
}

} // namespace bench

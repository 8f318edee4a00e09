#include "checker.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <span>

namespace scada {

namespace {

struct writer {
  service_id service = 0;
  std::uint64_t epoch = 0;
  friend auto operator<=>(const writer&, const writer&) = default;
};

class checker {
public:
  checker(const history& run, const plant& layout)
    : run_(run), layout_(layout) {
    // nop
  }

  report run(time_ns ended, time_ns patience) {
    out_.leaderships = run_.leaderships.size();
    out_.sections = run_.sections.size();
    check_leaderships();
    check_sections_within_leaderships();
    check_tags();
    check_ran_to_the_end(ended, patience);
    for (auto& node : run_.broken_off)
      violation("{} ended without closing its journal", node);
    return std::move(out_);
  }

private:
  // -- R1 ---------------------------------------------------------------------

  void check_leaderships() {
    std::map<service_id, std::vector<const leadership*>> by_service;
    for (auto& x : run_.leaderships)
      by_service[x.service].push_back(&x);
    for (auto& [service, epochs] : by_service) {
      std::sort(epochs.begin(), epochs.end(),
                [](auto a, auto b) { return a->start < b->start; });
      auto latest = epochs.front(); // of those so far, the one that ends last
      for (std::size_t i = 1; i < epochs.size(); ++i) {
        auto next = epochs[i];
        if (next->start < latest->stop)
          violation("{} had two leaders for {:.6f} s: {} (epoch {}) and {} "
                    "(epoch {})",
                    name(service),
                    seconds(std::min(latest->stop, next->stop) - next->start),
                    latest->node, latest->epoch, next->node, next->epoch);
        if (next->epoch <= epochs[i - 1]->epoch)
          violation("{}: the epoch went from {} on {} to {} on {}",
                    name(service), epochs[i - 1]->epoch, epochs[i - 1]->node,
                    next->epoch, next->node);
        if (next->stop > latest->stop)
          latest = next;
      }
    }
  }

  // -- R2 ---------------------------------------------------------------------

  void check_sections_within_leaderships() {
    std::map<writer, const leadership*> epochs;
    for (auto& x : run_.leaderships)
      epochs.emplace(writer{x.service, x.epoch}, &x);
    for (auto& x : run_.sections) {
      auto epoch = epochs.find({x.service, x.epoch});
      if (epoch == epochs.end())
        violation("{} wrote in epoch {}, which nobody led", name(x.service),
                  x.epoch);
      else if (x.start < epoch->second->start || x.stop > epoch->second->stop)
        violation("{} wrote outside its epoch {} on {}", name(x.service),
                  x.epoch, epoch->second->node);
    }
  }

  // -- R3 and R4 --------------------------------------------------------------

  /// One section as one of its tags sees it.
  struct use {
    tag_id tag;
    std::uint64_t token;
    const section* in;
  };

  void check_tags() {
    std::vector<use> uses;
    for (auto& x : run_.sections)
      for (auto& right : x.rights)
        uses.push_back({right.tag, right.token, &x});
    std::sort(uses.begin(), uses.end(), [](auto& a, auto& b) {
      return a.tag != b.tag ? a.tag < b.tag : a.in->start < b.in->start;
    });
    for (auto first = uses.begin(); first != uses.end();) {
      auto last = std::find_if(
        first, uses.end(), [first](auto& x) { return x.tag != first->tag; });
      check_writers({first, last});
      check_tokens({first, last});
      ++out_.tags;
      first = last;
    }
  }

  void check_writers(std::span<const use> uses) {
    std::map<writer, const use*> latest; // per writer, the use that ends last
    auto service = uses.front().in->service;
    auto contended = false;
    for (auto& next : uses) {
      writer who{next.in->service, next.in->epoch};
      contended = contended || who.service != service;
      for (auto& [other, before] : latest)
        if (other != who && next.in->start < before->in->stop)
          violation(
            "{} had two writers for {:.6f} s: {} and {}", tag_name(next.tag),
            seconds(std::min(before->in->stop, next.in->stop) - next.in->start),
            describe(*before), describe(next));
      auto& own = latest[who];
      if (own == nullptr || own->in->stop < next.in->stop)
        own = &next;
    }
    if (contended)
      ++out_.contended_tags;
  }

  void check_tokens(std::span<const use> uses) {
    const use* highest = nullptr; // the exclusive use with the largest token
    for (auto& next : uses) {
      auto alone = next.in->mode == pawl::exclusive;
      if (highest != nullptr
          && (next.token < highest->token
              || (alone && next.token == highest->token)))
        violation("{}: the lock token went back: {}, then {}",
                  tag_name(next.tag), describe(*highest), describe(next));
      else if (alone)
        highest = &next;
    }
  }

  // -- R5 ---------------------------------------------------------------------

  void check_ran_to_the_end(time_ns ended, time_ns patience) {
    std::map<service_id, time_ns> wrote;
    for (auto& x : run_.sections)
      if (x.start <= ended)
        wrote[x.service] = std::max(wrote[x.service], x.stop);
    for (auto& service : layout_.services()) {
      auto led = std::any_of(
        run_.leaderships.begin(), run_.leaderships.end(), [&](auto& x) {
          return x.service == service.id && x.start <= ended && ended <= x.stop;
        });
      if (!led)
        violation("nobody led {} at the end", service.name);
      else if (service.kind != service_kind::archive
               && wrote[service.id] < ended - patience)
        violation("{} was led at the end but had stopped writing",
                  service.name);
    }
  }

  // -- words ------------------------------------------------------------------

  std::string name(service_id x) const {
    return x < layout_.services().size() ? layout_.services()[x].name
                                         : fmt::format("service {}", x);
  }

  std::string tag_name(tag_id x) const {
    return x < layout_.tags().size() ? layout_.tags()[x]
                                     : fmt::format("tag {}", x);
  }

  std::string describe(const use& x) const {
    return fmt::format("{} (epoch {}, {}, token {})", name(x.in->service),
                       x.in->epoch, to_string(x.in->mode), x.token);
  }

  template <class... Ts>
  void violation(fmt::format_string<Ts...> format, Ts&&... xs) {
    if (++out_.violations <= report::max_sentences)
      out_.sentences.push_back(fmt::format(format, std::forward<Ts>(xs)...));
  }

  const history& run_;
  const plant& layout_;
  report out_;
};

} // namespace

report check(const history& run, const plant& layout, time_ns ended,
             time_ns patience) {
  return checker{run, layout}.run(ended, patience);
}

} // namespace scada

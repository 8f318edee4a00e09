// The fence around one tag of one store: lets writes pass in the order of their
// rights, whatever the order in which they arrive.
//
// It remembers the last write of every service that ever wrote the tag; for
// nearly all tags that is one service. Not thread-safe; the store locks.
//
//   F1  a write of a smaller epoch of a service than seen is refused;
//   F2  within an epoch a write that is not newer than seen is a repetition;
//   F3  a write whose lock token is behind that of another service is refused.
//       At equal tokens shared comes after exclusive: an exclusive grant
//       raises the token, and shared grants carry it until the next one.
//
// A new epoch of a service replaces its mark, lock token included: that token
// was given by the node of the old leader, and the tokens of shared grants of
// different nodes do not compare. F1 keeps the old leader out.

#pragma once

#include "tag.hpp"

#include <string_view>
#include <vector>

namespace scada {

enum class verdict : std::uint8_t { pass, repeated, stale_epoch, overtaken };

constexpr std::string_view to_string(verdict x) noexcept {
  switch (x) {
    case verdict::pass:
      return "pass";
    case verdict::repeated:
      return "repeated";
    case verdict::stale_epoch:
      return "stale_epoch";
    default:
      return "overtaken";
  }
}

class fence {
public:
  /// Judges a write; if it passes, it is what later ones are compared with.
  verdict judge(const write_stamp& write) {
    write_stamp* own = nullptr;
    auto behind = false;
    for (auto& mark : marks_) {
      if (mark.service == write.service)
        own = &mark;
      else if (!may_follow(write, mark))
        behind = true;
    }
    if (own != nullptr && write.epoch < own->epoch)
      return verdict::stale_epoch;
    if (own != nullptr && write.epoch == own->epoch && write.time <= own->time)
      return verdict::repeated;
    if (behind)
      return verdict::overtaken;
    if (own != nullptr)
      *own = write;
    else
      marks_.push_back(write);
    return verdict::pass;
  }

  /// Takes over what another store has seen.
  void learn(const write_stamp& seen) {
    for (auto& mark : marks_) {
      if (mark.service != seen.service)
        continue;
      if (seen.epoch > mark.epoch
          || (seen.epoch == mark.epoch && seen.time > mark.time))
        mark = seen;
      return;
    }
    marks_.push_back(seen);
  }

  [[nodiscard]] const std::vector<write_stamp>& marks() const noexcept {
    return marks_;
  }

private:
  static bool may_follow(const write_stamp& write, const write_stamp& other) {
    return write.lock_token > other.lock_token
           || (write.lock_token == other.lock_token
               && write.mode == pawl::shared);
  }

  std::vector<write_stamp> marks_;
};

} // namespace scada

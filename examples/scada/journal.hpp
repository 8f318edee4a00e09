// The journal of one node: who led what from when to when, and which service
// wrote which tags under which locks. Appended as things happen, one write(2)
// per record, so that what was recorded survives SIGKILL; read when all is over
// (journal_reader.hpp).
//
// One record is one line; times are CLOCK_MONOTONIC in nanoseconds:
//   B <node> <time>                         the node begins
//   L <service> <epoch> <time>              it leads the service from now on
//   T <service> <epoch> <token> <tag>...    from its next section on, the
//                                           service holds these tags by token
//   O <service> <epoch> <mode> <time> <first> <count>...
//                                           a section opens, over these tags
//   C <service> <epoch> <time>              it closes
//   E <service> <epoch> <time>              it leads the service no more
//   Z <time>                                the node ends in good order
//
// Compact: a heavy service writes the same tags by the same tokens again and
// again, so a section costs two short lines whatever the number of its tags.
//
// Thread-safe.

#pragma once

#include "history.hpp"

#include <filesystem>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>

namespace scada {

class journal {
public:
  journal(const std::filesystem::path& file, std::string_view node);

  ~journal();

  journal(const journal&) = delete;

  journal& operator=(const journal&) = delete;

  /// Whether the file could be made.
  [[nodiscard]] bool ok() const noexcept {
    return file_ >= 0;
  }

  void leader_began(service_id service, std::uint64_t epoch);

  void leader_ended(service_id service, std::uint64_t epoch);

  /// A service has one open section at a time.
  void section_opened(service_id service, std::uint64_t epoch,
                      pawl::lock_mode mode, std::span<const tag_right> rights);

  void section_closed(service_id service, std::uint64_t epoch);

  /// The last record. Without it the node counts as broken off.
  void ended();

private:
  using tokens = std::unordered_map<tag_id, std::uint64_t>;

  void note_tokens(service_id service, std::uint64_t epoch,
                   std::span<const tag_right> rights);
  void append(std::string_view lines);

  int file_;
  std::mutex mutex_;
  std::unordered_map<service_id, tokens> noted_; // guarded by mutex_
};

/// One critical section in the journal.
class recorded_section {
public:
  recorded_section(journal& log, service_id service, std::uint64_t epoch,
                   pawl::lock_mode mode, std::span<const tag_right> rights)
    : log_(log), service_(service), epoch_(epoch) {
    log_.section_opened(service, epoch, mode, rights);
  }

  ~recorded_section() {
    log_.section_closed(service_, epoch_);
  }

  recorded_section(const recorded_section&) = delete;

  recorded_section& operator=(const recorded_section&) = delete;

private:
  journal& log_;
  service_id service_;
  std::uint64_t epoch_;
};

} // namespace scada

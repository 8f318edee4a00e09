#include "journal.hpp"

#include <fmt/format.h>

#include <fcntl.h>
#include <map>
#include <unistd.h>

namespace scada {

journal::journal(const std::filesystem::path& file, std::string_view node)
  : file_(open(file.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC,
               0644)) {
  append(fmt::format("B {} {}\n", node, now_ns()));
}

journal::~journal() {
  if (file_ >= 0)
    close(file_);
}

void journal::leader_began(service_id service, std::uint64_t epoch) {
  std::unique_lock guard{mutex_};
  noted_[service].clear();
  append(fmt::format("L {} {} {}\n", service, epoch, now_ns()));
}

void journal::leader_ended(service_id service, std::uint64_t epoch) {
  append(fmt::format("E {} {} {}\n", service, epoch, now_ns()));
}

void journal::section_opened(service_id service, std::uint64_t epoch,
                             pawl::lock_mode mode,
                             std::span<const tag_right> rights) {
  // Read the clock first: a section is rather recorded too long than too short.
  auto start = now_ns();
  note_tokens(service, epoch, rights);
  auto line
    = fmt::format("O {} {} {} {}", service, epoch, to_string(mode), start);
  for (std::size_t i = 0; i < rights.size();) {
    auto first = rights[i].tag;
    tag_id count = 0;
    while (i < rights.size() && rights[i].tag == first + count)
      ++count, ++i;
    fmt::format_to(std::back_inserter(line), " {} {}", first, count);
  }
  append(line += '\n');
}

void journal::section_closed(service_id service, std::uint64_t epoch) {
  append(fmt::format("C {} {} {}\n", service, epoch, now_ns()));
}

void journal::ended() {
  append(fmt::format("Z {}\n", now_ns()));
}

// -- private ------------------------------------------------------------------

void journal::note_tokens(service_id service, std::uint64_t epoch,
                          std::span<const tag_right> rights) {
  std::map<std::uint64_t, std::vector<tag_id>> changed;
  {
    std::unique_lock guard{mutex_};
    auto& noted = noted_[service];
    for (auto& right : rights) {
      auto [entry, added] = noted.try_emplace(right.tag, right.token);
      if (added || entry->second != right.token)
        changed[right.token].push_back(right.tag);
      entry->second = right.token;
    }
  }
  std::string lines;
  for (auto& [token, tags] : changed)
    lines += fmt::format("T {} {} {} {}\n", service, epoch, token,
                         fmt::join(tags, " "));
  if (!lines.empty())
    append(lines);
}

void journal::append(std::string_view lines) {
  // O_APPEND makes each call one record after the others, whoever calls. A full
  // disk loses records, which the checker then finds missing.
  while (file_ >= 0 && !lines.empty()) {
    auto written = write(file_, lines.data(), lines.size());
    if (written < 0 && errno != EINTR)
      return;
    if (written > 0)
      lines.remove_prefix(static_cast<std::size_t>(written));
  }
}

} // namespace scada

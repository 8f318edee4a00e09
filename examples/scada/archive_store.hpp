// Values in RocksDB, by time. Keys are
//   shard (8 bytes) | tag (4) | time (8), big-endian,
// where a shard is `shard_length` of time: what is written now lies together,
// a tag's values within a shard follow each other, and an old shard is dropped
// as one range.
//
// Rows are handed to a small pool of writers, each of which flushes in batches.
// Thread-safe; `add` copies and returns, and drops rows when the writers are
// more than `max_backlog` behind.

#pragma once

#include "clock.hpp"
#include "plant.hpp"
#include "result.hpp"
#include "tag.hpp"

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <filesystem>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace rocksdb {
class DB;
}

namespace scada {

struct archive_figures {
  std::uint64_t rows = 0;
  std::uint64_t batches = 0;
  std::uint64_t dropped = 0;
  std::uint64_t failed = 0; // rows that RocksDB refused
};

class archive_store {
public:
  static constexpr time_ns shard_length = 10'000'000'000;
  static constexpr std::size_t max_backlog = 200'000;
  static constexpr std::size_t writers = 2;

  static result<std::unique_ptr<archive_store>> open(
    const std::filesystem::path& directory);

  /// Writes what is left and closes.
  ~archive_store();

  void add(const tag_updates& updates);

  [[nodiscard]] archive_figures figures() const;

  /// The values of a tag within [from, to), for trends.
  [[nodiscard]] std::vector<std::pair<time_ns, double>> values(
    tag_id tag, time_ns from, time_ns to) const;

private:
  explicit archive_store(std::unique_ptr<rocksdb::DB> db);

  void write_batches();
  void write_batch(const tag_updates& rows);

  std::unique_ptr<rocksdb::DB> db_;
  std::atomic<std::uint64_t> rows_ = 0;
  std::atomic<std::uint64_t> batches_ = 0;
  std::atomic<std::uint64_t> dropped_ = 0;
  std::atomic<std::uint64_t> failed_ = 0;

  std::mutex mutex_; // guards what follows
  std::condition_variable more_;
  tag_updates backlog_;
  bool closing_ = false;

  std::vector<std::thread> threads_;
};

} // namespace scada

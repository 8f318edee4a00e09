#include "archive_store.hpp"

#include <fmt/format.h>

#include <chrono>
#include <cstring>
#include <rocksdb/db.h>
#include <rocksdb/write_batch.h>

namespace scada {

namespace {

using namespace std::chrono_literals;

constexpr std::size_t key_size = 20;
constexpr std::size_t batch_size = 2000;
constexpr auto batch_age = 50ms;

template <class T>
void put_big_endian(std::string& out, T value) {
  for (int shift = (sizeof(T) - 1) * 8; shift >= 0; shift -= 8)
    out += static_cast<char>(value >> shift & 0xff);
}

std::string key_of(tag_id tag, time_ns time) {
  std::string key;
  key.reserve(key_size);
  put_big_endian(
    key, static_cast<std::uint64_t>(time / archive_store::shard_length));
  put_big_endian(key, tag);
  put_big_endian(key, static_cast<std::uint64_t>(time));
  return key;
}

time_ns time_of(std::string_view key) {
  std::uint64_t time = 0;
  for (auto c : key.substr(12))
    time = time << 8 | static_cast<unsigned char>(c);
  return static_cast<time_ns>(time);
}

} // namespace

result<std::unique_ptr<archive_store>> archive_store::open(
  const std::filesystem::path& directory) {
  rocksdb::Options options;
  options.create_if_missing = true;
  options.write_buffer_size = 16 << 20;
  options.keep_log_file_num = 2;
  options.max_open_files = 64;
  rocksdb::DB* db = nullptr;
  auto status = rocksdb::DB::Open(options, directory.string(), &db);
  if (!status.ok())
    return trouble{
      fmt::format("archive {}: {}", directory.string(), status.ToString())};
  return std::unique_ptr<archive_store>{
    new archive_store{std::unique_ptr<rocksdb::DB>{db}}};
}

archive_store::archive_store(std::unique_ptr<rocksdb::DB> db)
  : db_(std::move(db)) {
  for (std::size_t i = 0; i < writers; ++i)
    threads_.emplace_back([this] { write_batches(); });
}

archive_store::~archive_store() {
  {
    std::unique_lock guard{mutex_};
    closing_ = true;
  }
  more_.notify_all();
  for (auto& thread : threads_)
    thread.join();
}

void archive_store::add(const tag_updates& updates) {
  std::unique_lock guard{mutex_};
  if (backlog_.size() + updates.size() > max_backlog) {
    dropped_ += updates.size();
    return;
  }
  backlog_.insert(backlog_.end(), updates.begin(), updates.end());
  if (backlog_.size() >= batch_size)
    more_.notify_one();
}

archive_figures archive_store::figures() const {
  return {rows_, batches_, dropped_, failed_};
}

std::vector<std::pair<time_ns, double>> archive_store::values(
  tag_id tag, time_ns from, time_ns to) const {
  std::vector<std::pair<time_ns, double>> found;
  std::unique_ptr<rocksdb::Iterator> at{
    db_->NewIterator(rocksdb::ReadOptions{})};
  while (from < to) {
    auto shard_end = (from / shard_length + 1) * shard_length;
    auto end = key_of(tag, std::min(to, shard_end) - 1);
    for (at->Seek(key_of(tag, from));
         at->Valid() && at->key().compare(end) <= 0; at->Next()) {
      double value = 0;
      std::memcpy(&value, at->value().data(),
                  std::min(sizeof(value), at->value().size()));
      found.emplace_back(time_of(at->key().ToStringView()), value);
    }
    from = shard_end;
  }
  return found;
}

// -- private ------------------------------------------------------------------

// A batch is what has come in until it is large or old enough.
void archive_store::write_batches() {
  std::unique_lock guard{mutex_};
  for (;;) {
    more_.wait_for(guard, batch_age, [this] {
      return closing_ || backlog_.size() >= batch_size;
    });
    if (backlog_.empty()) {
      if (closing_)
        return;
      continue;
    }
    auto rows = std::exchange(backlog_, {});
    guard.unlock();
    write_batch(rows);
    guard.lock();
  }
}

void archive_store::write_batch(const tag_updates& rows) {
  rocksdb::WriteBatch batch;
  for (auto& row : rows) {
    std::string value(sizeof(double) + 1, '\0');
    std::memcpy(value.data(), &row.value, sizeof(double));
    value[sizeof(double)] = static_cast<char>(row.state);
    batch.Put(key_of(row.tag, row.stamp.time), value);
  }
  if (db_->Write(rocksdb::WriteOptions{}, &batch).ok()) {
    rows_ += rows.size();
    ++batches_;
  } else {
    failed_ += rows.size();
  }
}

} // namespace scada

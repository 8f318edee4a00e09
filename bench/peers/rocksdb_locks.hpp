// RocksDB's pessimistic transactions as locks: a key is locked and given back,
// nothing is read or written. The database lies in memory if it can, and is
// removed in the end.

#pragma once

#include "bench/harness.hpp"

#include <rocksdb/utilities/transaction_db.h>

#include <filesystem>
#include <memory>
#include <stdexcept>
#include <string>

namespace bench {

class rocksdb_locks {
public:
  explicit rocksdb_locks(const workload& work) : where_(make_directory()) {
    rocksdb::Options options;
    options.create_if_missing = true;
    rocksdb::TransactionDB* db = nullptr;
    auto status = rocksdb::TransactionDB::Open(options, {}, where_, &db);
    if (!status.ok()) {
      std::filesystem::remove_all(where_);
      throw std::runtime_error("RocksDB: " + status.ToString());
    }
    db_.reset(db);
    keeper_ = begin();
    for (const auto& x : work.held)
      if (!lock(*keeper_, x))
        throw std::runtime_error("RocksDB: a free key could not be locked");
  }

  ~rocksdb_locks() {
    keeper_.reset();
    db_.reset();
    std::error_code ignored;
    std::filesystem::remove_all(where_, ignored);
  }

  rocksdb_locks(const rocksdb_locks&) = delete;
  rocksdb_locks& operator=(const rocksdb_locks&) = delete;

  /// One transaction serves all locks of a thread.
  [[nodiscard]] std::unique_ptr<rocksdb::Transaction> begin() {
    return std::unique_ptr<rocksdb::Transaction>{db_->BeginTransaction({})};
  }

  /// Without a place for the value nothing is read.
  static bool lock(rocksdb::Transaction& t, const std::string& key) {
    return t.GetForUpdate({}, key, static_cast<std::string*>(nullptr)).ok();
  }

  static void release(rocksdb::Transaction& t, const std::string& key) {
    t.UndoGetForUpdate(key);
  }

private:
  static std::string make_directory() {
    std::error_code ignored;
    auto base = std::filesystem::is_directory("/dev/shm", ignored)
                  ? std::filesystem::path{"/dev/shm"}
                  : std::filesystem::temp_directory_path();
    auto name = (base / "pawl-bench-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr)
      throw std::runtime_error("no directory for RocksDB in " + base.string());
    return name;
  }

  std::string where_;
  std::unique_ptr<rocksdb::TransactionDB> db_;
  std::unique_ptr<rocksdb::Transaction> keeper_;
};

} // namespace bench

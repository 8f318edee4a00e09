// What a node offers to the services that it leads. Thread-safe.

#pragma once

#include "journal.hpp"
#include "latency.hpp"
#include "plant.hpp"
#include "reporter.hpp"
#include "tag_store.hpp"

#include <pawl/pawl.hpp>

#include <atomic>
#include <chrono>
#include <filesystem>

namespace scada {

struct station_counters {
  std::atomic<std::uint64_t> operator_writes = 0;
  std::atomic<std::uint64_t> operator_failures = 0;
  std::atomic<std::uint64_t> lock_failures = 0; // of heavy writers
  std::atomic<std::uint64_t> device_errors = 0;
  std::atomic<std::uint64_t> archived = 0;
  latency locks; // on tags
};

struct station_context {
  const plant& layout;
  tag_store& store;
  journal& log;
  reporter& tell;
  station_counters& counters;
  pawl::scope tags;
  std::filesystem::path archive;
  std::chrono::milliseconds poll_interval;
  std::atomic<int> running = 0; // services that this node leads now
};

} // namespace scada

// The end of a run: its summary, and whether it was a good one.

#pragma once

#include "run_plan.hpp"
#include "supervisor.hpp"

namespace scada {

/// Merges what all stores and nodes recorded, prints what there is to say, and
/// returns whether everything was as it has to be.
bool judge(const run_options& options, const run_plan& plan,
           const run_result& result);

} // namespace scada

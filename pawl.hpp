// pawl: distributed locks for applications written with CAF. The one header
// for users.

#pragma once

#include "pawl/actors/blocking_transact.hpp"
#include "pawl/actors/cancel.hpp"
#include "pawl/actors/expected.hpp"
#include "pawl/actors/leadership.hpp"
#include "pawl/actors/lock.hpp"
#include "pawl/actors/log.hpp"
#include "pawl/actors/misuse.hpp"
#include "pawl/actors/request.hpp"
#include "pawl/actors/scope.hpp"
#include "pawl/actors/session.hpp"
#include "pawl/actors/task.hpp"
#include "pawl/actors/transact.hpp"
#include "pawl/core/lock_mode.hpp"
#include "pawl/core/outcome.hpp"
#include "pawl/net/node.hpp"

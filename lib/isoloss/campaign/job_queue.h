// Many short pieces of work of one kind, on all threads, with one line of
// progress.
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <string>

#include "isoloss/base/executor.h"

namespace isoloss::campaign {

/// Calls job(i, executor) once for each i in [0, jobs), side by side on
/// `workers` threads (0: one per available processor), and returns whether all
/// were done: not if `stop` became true. Shows `title`, how many are done and
/// the time left on standard error: in place on a terminal, elsewhere
/// Heartbeat's lines. The first exception ends the others and is rethrown.
/// Exact    nothing may depend on which thread runs a job, or when.
bool RunJobs(const std::string& title, size_t jobs, int workers,
             const std::atomic<bool>& stop,
             const std::function<void(size_t job, Executor& executor)>& job);

}  // namespace isoloss::campaign

// Divides many short pieces of work of one kind among all threads, with one
// line of progress.
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <string>

#include "isoloss/base/executor.h"
#include "isoloss/base/job_pool.h"

namespace isoloss::campaign {

/// Returns as many threads as there are jobs, at most `workers` (0: one per
/// available processor), each of which works alone.
Crew OneThreadEach(size_t jobs, int workers);

/// Calls job(i, executor) once for each i in [0, jobs), side by side as `crew`
/// says. Returns whether all were done, which is false if `stop` became true.
/// Shows `title`, the number of finished jobs and the time left on standard
/// error: in place on a terminal, elsewhere in Heartbeat's lines. The first
/// exception ends the remaining jobs and is rethrown.
/// Exact    Nothing may depend on which thread takes a job, or when.
bool RunJobs(const std::string& title, size_t jobs, const Crew& crew,
             const std::atomic<bool>& stop,
             const std::function<void(size_t job, Executor& executor)>& job);

}  // namespace isoloss::campaign

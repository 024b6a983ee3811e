// Divides many short pieces of work of one kind among all threads, with one
// line of progress.
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <string>

#include "isoloss/base/threads.h"

namespace isoloss::campaign {

/// Calls job(i, team) once for each i in [0, jobs), side by side on `workers`
/// threads (0: one per available processor). Returns whether all were done,
/// which is false if `stop` became true. Shows `title`, the number of finished
/// jobs and the time left on standard error: in place on a terminal, elsewhere
/// in Heartbeat's lines. The first exception ends the remaining jobs and is
/// rethrown.
/// Exact    Nothing may depend on which thread takes a job, or when.
bool RunJobs(const std::string& title, size_t jobs, int workers,
             const std::atomic<bool>& stop,
             const std::function<void(size_t job, ThreadTeam& team)>& job);

}  // namespace isoloss::campaign

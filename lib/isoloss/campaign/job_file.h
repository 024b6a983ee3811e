// Tells everybody who watches a folder which runs a job makes there. Between
// two runs, and before the first, nothing else there says that more will come.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "isoloss/base/files.h"

namespace isoloss::campaign {

struct JobPlan {
  int64_t steps = 0;              ///< of each run
  std::vector<std::string> runs;  ///< "mxfp8-seed1", in their order
};

/// Holds the hidden file `.RUN.job` of the first run. It is locked from
/// construction to destruction or the death of the process. A file that another
/// job has locked is left to that job.
/// Errors   IoError if it can't be made, or is a link.
class JobFile {
 public:
  JobFile(const std::filesystem::path& folder, const JobPlan& plan);
  ~JobFile();
  JobFile(const JobFile&) = delete;
  JobFile& operator=(const JobFile&) = delete;

 private:
  std::filesystem::path path_;
  Descriptor file_;
};

/// Returns the joined plans of all jobs that are at work in `folder`, or
/// nothing if there is none. A file that a killed job has left does not count.
std::optional<JobPlan> LiveJob(const std::filesystem::path& folder);

}  // namespace isoloss::campaign

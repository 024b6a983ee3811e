#include "isoloss/campaign/job_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <sstream>
#include <system_error>
#include <utility>

#include "isoloss/base/printable.h"

namespace isoloss::campaign {
namespace {

namespace fs = std::filesystem;

/// This is far above any real plan; the file is not trusted.
constexpr size_t kMostBytes = size_t{1} << 20;

struct flock WholeFile(short type) {
  struct flock lock = {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  return lock;
}

bool Locks(const Descriptor& file) {
  struct flock lock = WholeFile(F_WRLCK);
  return ::fcntl(file.get(), F_OFD_SETLK, &lock) == 0;
}

/// Returns whether a job holds the lock. If files can't be locked, none does.
/// The call takes no lock, so that a job that begins meanwhile gets its lock.
bool IsLocked(const Descriptor& file) {
  struct flock lock = WholeFile(F_RDLCK);
  return ::fcntl(file.get(), F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

bool WriteAll(const Descriptor& file, const std::string& text) {
  return ::ftruncate(file.get(), 0) == 0 &&
         ::pwrite(file.get(), text.data(), text.size(), 0) ==
             static_cast<ssize_t>(text.size());
}

/// Returns "" if the file is no regular file or too long.
std::string ReadAll(const Descriptor& file) {
  struct stat status = {};
  if (::fstat(file.get(), &status) != 0 || !S_ISREG(status.st_mode) ||
      status.st_size < 0 || static_cast<size_t>(status.st_size) > kMostBytes) {
    return "";
  }
  std::string text(static_cast<size_t>(status.st_size), '\0');
  const ssize_t size = ::pread(file.get(), text.data(), text.size(), 0);
  text.resize(size > 0 ? static_cast<size_t>(size) : 0);
  return text;
}

/// The first line is the number of steps. Each further line is a run.
void Join(const std::string& text, JobPlan& plan) {
  std::istringstream lines(text);
  std::string line;
  if (!std::getline(lines, line)) return;
  int64_t steps = 0;
  std::from_chars(line.data(), line.data() + line.size(), steps);
  plan.steps = std::max(plan.steps, steps);
  while (std::getline(lines, line)) {
    // Names appear as other lists of runs show them.
    std::string name = Printable(line);
    if (!name.empty() && std::ranges::count(plan.runs, name) == 0) {
      plan.runs.push_back(std::move(name));
    }
  }
}

}  // namespace

JobFile::JobFile(const fs::path& folder, const JobPlan& plan) {
  if (plan.runs.empty()) return;
  const fs::path path = folder / fmt::format(".{}.job", plan.runs.front());
  file_ = OpenOwnFile(path, "job");
  if (!Locks(file_)) return;
  path_ = path;
  WriteAll(file_,
           fmt::format("{}\n{}\n", plan.steps, fmt::join(plan.runs, "\n")));
}

JobFile::~JobFile() {
  if (!path_.empty() && IsStillAt(file_.get(), path_)) {
    ::unlink(path_.c_str());
  }
}

std::optional<JobPlan> LiveJob(const fs::path& folder) {
  JobPlan plan;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (!name.starts_with(".") || !name.ends_with(".job")) continue;
    const Descriptor file(::open(
        entry->path().c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
    if (file.get() >= 0 && IsLocked(file)) Join(ReadAll(file), plan);
  }
  if (plan.runs.empty()) return std::nullopt;
  return plan;
}

}  // namespace isoloss::campaign

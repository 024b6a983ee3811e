#include "isoloss/doctor/machine.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <fstream>
#include <sstream>
#include <system_error>
#include <vector>

#include "isoloss/base/executor.h"

namespace isoloss::doctor {
namespace {

namespace fs = std::filesystem;

/// Returns the first bytes of a file that the kernel makes; "" if there is
/// none.
std::string Front(const fs::path& path) {
  std::string text(size_t{64} << 10, '\0');
  std::ifstream file(path);
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(file.gcount()));
  return text;
}

/// Returns the number that `text` begins with. "max" and -1 mean that there is
/// no limit.
std::optional<double> Limit(std::string_view text) {
  // Version 1 has the largest multiple of a page instead of "max".
  constexpr double kNone = 0x1p62;
  double value = 0;
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || value < 0 || value >= kNone) return std::nullopt;
  return value;
}

void Lower(std::optional<double>& least, std::optional<double> limit) {
  if (limit) least = std::min(least.value_or(*limit), *limit);
}

/// The text "200000 100000" means 200000 microseconds out of each 100000.
std::optional<double> Share(std::string_view quota, std::string_view period) {
  const auto used = Limit(quota);
  const auto of = Limit(period);
  if (!used || !of || *of <= 0) return std::nullopt;
  return *used / *of;
}

/// Reads one folder of a hierarchy, of either version.
void ReadFolder(const fs::path& folder, GroupLimits& limits) {
  Lower(limits.memory_bytes, Limit(Front(folder / "memory.max")));
  Lower(limits.memory_bytes, Limit(Front(folder / "memory.limit_in_bytes")));
  const std::string cpu = Front(folder / "cpu.max");
  if (const size_t space = cpu.find(' '); space != std::string::npos) {
    Lower(limits.processors, Share(cpu, cpu.substr(space + 1)));
  }
  Lower(limits.processors, Share(Front(folder / "cpu.cfs_quota_us"),
                                 Front(folder / "cpu.cfs_period_us")));
}

/// Returns "MemAvailable:  123 kB" of /proc/meminfo in bytes; 0 if it is
/// missing.
double MemoryFigure(const std::string& text, std::string_view name) {
  const size_t begin = text.find(name);
  if (begin == std::string::npos) return 0;
  std::istringstream rest(text.substr(begin + name.size()));
  double kibibytes = 0;
  rest >> kibibytes;
  return kibibytes * 1024;
}

}  // namespace

GroupLimits ReadGroupLimits(const fs::path& root) {
  GroupLimits limits;
  std::istringstream lines(Front(root / "proc/self/cgroup"));
  // A line is number:controllers:/path; version 2 has no controllers.
  for (std::string line; std::getline(lines, line);) {
    const size_t first = line.find(':');
    const size_t second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const fs::path top = root / "sys/fs/cgroup" / controllers;
    // In a container the path may be that of the host. Then only its top exists
    // here.
    fs::path folder = fs::path(line.substr(second + 1)).relative_path();
    for (; !folder.empty(); folder = folder.parent_path()) {
      ReadFolder(top / folder, limits);
    }
    ReadFolder(top, limits);
  }
  return limits;
}

Machine ExamineMachine() {
  Machine machine;
  machine.processors = AvailableProcessors();
  machine.online = static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
  const std::string memory = Front("/proc/meminfo");
  machine.memory_bytes = MemoryFigure(memory, "MemTotal:");
  machine.available_bytes = MemoryFigure(memory, "MemAvailable:");
  machine.limits = ReadGroupLimits();
  return machine;
}

Disk ExamineDisk(const fs::path& folder) {
  Disk disk;
  std::error_code error;
  disk.existing = fs::absolute(folder, error).lexically_normal();
  while (!fs::exists(disk.existing, error) && disk.existing.has_parent_path() &&
         disk.existing != disk.existing.parent_path()) {
    disk.existing = disk.existing.parent_path();
  }
  if (!fs::is_directory(disk.existing, error)) {
    disk.problem = "it is no folder";
  } else if (access(disk.existing.c_str(), W_OK | X_OK) != 0) {
    disk.problem = std::generic_category().message(errno);
  }
  const fs::space_info space = fs::space(disk.existing, error);
  if (!error) disk.free_bytes = static_cast<double>(space.available);
  return disk;
}

}  // namespace isoloss::doctor

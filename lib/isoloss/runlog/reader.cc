#include "isoloss/runlog/reader.h"

#include <fmt/format.h>

#include <string>
#include <utility>
#include <vector>

#include "isoloss/base/error.h"
#include "isoloss/hdf5/sealed_file.h"
#include "isoloss/runlog/schema_reader.h"

namespace isoloss::runlog {
namespace {

template <typename T>
[[noreturn]] void Reject(const std::string& path, const std::string& column,
                         size_t row, const T& found, const std::string& rule) {
  ThrowError(ErrorKind::kFormat,
             "{}: {} in row {} is {}, but must be {} (docs/run-log.md). The "
             "file is damaged or no run log; make it again.",
             path, column, row, found, rule);
}

/// Functions that search a log by step rely on this check.
void CheckSteps(const std::string& path, const Group& group,
                const RunLog& log) {
  if (!group.HasSteps()) return;
  const std::vector<int64_t>& steps = *View(log).Steps(group);
  for (size_t i = 1; i < steps.size(); ++i) {
    if (steps[i] > steps[i - 1]) continue;
    Reject(path, fmt::format("/{}/step", group.name), i, steps[i],
           fmt::format("above {}", steps[i - 1]));
  }
}

void CheckTimes(const std::string& path, const std::vector<Event>& events) {
  for (size_t i = 0; i < events.size(); ++i) {
    if (IsCalendarTime(events[i].unix_seconds)) continue;
    Reject(path, "/events/unix_seconds", i, events[i].unix_seconds,
           "from 0 to the end of year 9999");
  }
}

}  // namespace

bool IsCalendarTime(double unix_seconds) {
  constexpr double kYear10000 = 253402300800.0;
  return 0 <= unix_seconds && unix_seconds < kYear10000;
}

RunLog ReadRunLog(const std::filesystem::path& path, hdf5::Maker maker) {
  RunLog log;
  const auto decode = [&](const hdf5::Object& file) {
    ReadColumns(file, path.string(), hdf5::kRunLogFile, SchemaOf<RunLog>(),
                MutableView(log));
  };
  log.charge = hdf5::ReadSealedFile(path, hdf5::kRunLogFile, decode, maker);
  for (const Group& group : RowGroups()) CheckSteps(path.string(), group, log);
  CheckTimes(path.string(), log.events);
  return log;
}

}  // namespace isoloss::runlog

#include "isoloss/logs/open_log.h"

#include <array>
#include <fstream>
#include <string_view>
#include <utility>
#include <vector>

#include "isoloss/base/error.h"
#include "isoloss/logs/foreign_logs.h"
#include "isoloss/logs/log_files.h"
#include "isoloss/runlog/journal.h"
#include "isoloss/runlog/reader.h"
#include "isoloss/runlog/recorder.h"

namespace isoloss::logs {
namespace {

namespace fs = std::filesystem;

/// If a log is missing but the run's journal exists, the error names the
/// journal.
void CheckPresent(const fs::path& file) {
  std::error_code error;
  if (fs::exists(file, error) || file.extension() != ".h5") return;
  const fs::path journal = runlog::RunPaths::Of(file).Journal();
  if (!fs::exists(journal, error)) return;
  ThrowError(ErrorKind::kIo,
             "{}: No such file, but {} is there: the run has not ended. Pass "
             "that, or wait for the log.",
             file.string(), journal.string());
}

OpenedLog Open(const fs::path& file) {
  CheckPresent(file);
  // An empty or cut journal must be refused as a journal, which its name says
  // it is.
  if (!IsJournal(file) && file.extension() != ".journal") {
    return {runlog::ReadRunLog(file), false, ""};
  }
  runlog::JournalContent content = runlog::ReadJournal(file);
  return {std::move(content.log), true, Printable(content.note)};
}

}  // namespace

bool IsJournal(const fs::path& file) {
  std::error_code error;
  if (!fs::is_regular_file(file, error)) return false;
  std::array<char, runlog::kJournalMagic.size()> head{};
  std::ifstream stream(file, std::ios::binary);
  stream.read(head.data(), head.size());
  return stream &&
         std::string_view(head.data(), head.size()) == runlog::kJournalMagic;
}

OpenedLog OpenLog(const fs::path& file) {
  if (!IsForeignLog(file)) return OnOneLine(Open, file);
  std::vector<compare::Run> runs = ReadRuns({file});
  if (runs.size() != 1) {
    ThrowError(ErrorKind::kConfig,
               "{}: it holds {} runs, but one is needed here. Give a log of "
               "one; isoloss import shows which it holds.",
               Printable(file.string()), runs.size());
  }
  return {std::move(runs.front().log), false, ""};
}

}  // namespace isoloss::logs

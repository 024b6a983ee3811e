#include "isoloss/campaign/history_file.h"

#include <map>
#include <set>
#include <string>
#include <system_error>

#include "isoloss/base/atomic_file.h"
#include "isoloss/base/error.h"
#include "isoloss/base/files.h"
#include "isoloss/base/text_file.h"
#include "isoloss/report/history_file.h"

namespace isoloss::campaign {
namespace {

using compare::FigureRecord;
std::string ReadIfThere(const std::filesystem::path& path) {
  std::error_code error;
  if (!std::filesystem::exists(path, error) && !error) return "";
  return ReadTextFile(path, "Give another --file.");
}

/// What is new to a history, and what that replaces.
struct NewLines {
  HistoryUpdate update;
  std::vector<std::string> lines;
  std::set<FigureRecord::RunKey> gone;
};

[[noreturn]] void RefuseOtherValues(const std::filesystem::path& path,
                                    const FigureRecord& known,
                                    const FigureRecord& record) {
  const auto outcome = [](const FigureRecord& of) {
    return of.outcome.empty() ? "none" : of.outcome;
  };
  ThrowError(ErrorKind::kConfig,
             "{}: {} is there with other values (content {}, outcome {}; now "
             "content {}, outcome {}). Equal programs give equal runs: look at "
             "what differs, or take the new values with --replace.",
             path.string(), report::HistoryRunName(record), known.content,
             outcome(known), record.content, outcome(record));
}

NewLines Sort(const std::filesystem::path& path,
              const std::vector<FigureRecord>& there,
              const std::vector<FigureRecord>& records, bool replace) {
  std::map<FigureRecord::RunKey, const FigureRecord*> known;
  for (const FigureRecord& record : there) known[record.Key()] = &record;
  NewLines sorted;
  for (const FigureRecord& record : records) {
    const auto found = known.find(record.Key());
    if (found == known.end()) {
      ++sorted.update.added;
    } else if (*found->second == record) {
      ++sorted.update.known;
      continue;
    } else if (replace) {
      sorted.gone.insert(record.Key());
      ++sorted.update.replaced;
    } else {
      RefuseOtherValues(path, *found->second, record);
    }
    sorted.lines.push_back(report::HistoryLine(record));
  }
  return sorted;
}

}  // namespace

std::vector<FigureRecord> ReadHistory(const std::filesystem::path& path) {
  return report::ParseHistory(
      ReadTextFile(path, "Make it with `isoloss lab history record`."),
      path.string());
}

HistoryUpdate AddToHistory(const std::filesystem::path& path,
                           const std::vector<FigureRecord>& records,
                           bool replace) {
  // What others add meanwhile would be lost.
  const Descriptor lock = LockFolder(path.parent_path(), /*wait=*/true);
  RemoveStaleTemporaries(path.parent_path(), path.filename().string());
  std::string text = ReadIfThere(path);
  const std::vector<FigureRecord> there =
      report::ParseHistory(text, path.string());
  const NewLines sorted = Sort(path, there, records, replace);
  if (sorted.lines.empty()) return sorted.update;
  if (!sorted.gone.empty()) {
    text.clear();
    for (const FigureRecord& record : there) {
      if (sorted.gone.contains(record.Key())) continue;
      text += report::HistoryLine(record) + "\n";
    }
  }
  if (!text.empty() && !text.ends_with('\n')) text += '\n';
  for (const std::string& line : sorted.lines) text += line + "\n";
  report::ParseHistory(text, path.string());  // what is written can be read
  if (text.size() > kMaxTextFileBytes) {
    ThrowError(ErrorKind::kConfig,
               "{}: it would have {} bytes, but at most {} are read. Begin "
               "another file.",
               path.string(), text.size(), kMaxTextFileBytes);
  }
  WriteFileAtomically(path, text);
  return sorted.update;
}

}  // namespace isoloss::campaign

#include "isoloss/foreign/read.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <memory>
#include <string>
#include <system_error>
#include <utility>

#include "isoloss/base/error.h"
#include "isoloss/base/printable.h"
#include "isoloss/base/text_file.h"
#include "isoloss/foreign/csv.h"
#include "isoloss/foreign/event_file.h"
#include "isoloss/foreign/event_runs.h"
#include "isoloss/foreign/json_logs.h"
#include "isoloss/foreign/line_format.h"
#include "isoloss/foreign/text.h"

namespace isoloss::foreign {

#define ISOLOSS_LINE_FORMAT(name) extern const LineFormat kLineFormat_##name;
#include "isoloss/foreign/formats.def"
#undef ISOLOSS_LINE_FORMAT

bool LineReader::has_loss() const {
  return run_.Main(Quantity::kLoss) != nullptr ||
         run_.Main(Quantity::kEvalLoss) != nullptr;
}

namespace {

constexpr const LineFormat* kLineFormats[] = {
#define ISOLOSS_LINE_FORMAT(name) &kLineFormat_##name,
#include "isoloss/foreign/formats.def"
#undef ISOLOSS_LINE_FORMAT
};

/// Of a checkout without its large files.
constexpr std::string_view kPointer = "version https://git-lfs";

/// Empty if no format knows a line.
std::vector<ForeignRun> ReadLines(std::string_view text) {
  struct Candidate {
    const LineFormat* format;
    std::unique_ptr<LineReader> reader;
    int64_t lines = 0;

    /// DeepSpeed prints beside what trains with it, line by line: a loss goes
    /// before many lines.
    std::pair<bool, int64_t> rank() const {
      return {lines > 0 && reader->has_loss(), lines};
    }
  };
  std::vector<Candidate> candidates;
  for (const LineFormat* format : kLineFormats) {
    candidates.push_back({format, format->make()});
  }
  ForEachLine(text, [&candidates](std::string_view line) {
    for (Candidate& one : candidates) {
      if (!one.reader->Read(line)) continue;
      ++one.lines;
      return;
    }
  });
  const auto best = std::ranges::max_element(candidates, {}, &Candidate::rank);
  if (best->lines == 0) return {};
  best->reader->Finish();
  std::vector<ForeignRun> runs;
  runs.push_back(std::move(best->reader->run()));
  runs.back().format = best->format->name;
  return runs;
}

std::vector<ForeignRun> ReadAny(std::string_view content) {
  const size_t first = content.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos) return {};
  if (content.starts_with(kPointer)) {
    ThrowError(ErrorKind::kFormat,
               "the file is a pointer of git-lfs, three lines of text in place "
               "of the log. Fetch the file: git lfs pull.");
  }
  if (content[first] == '{') {
    std::vector<ForeignRun> runs = ReadJsonLog(content);
    if (runs.empty()) runs = ReadJsonLines(content);
    if (!runs.empty()) return runs;
  }
  std::vector<ForeignRun> runs = ReadCsv(content);
  return runs.empty() ? ReadLines(content) : runs;
}

/// Enough to tell.
constexpr size_t kEventHead = 13;

bool IsEventFile(const std::filesystem::path& path) {
  std::array<char, kEventHead> head{};
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return false;
  std::ifstream stream(path, std::ios::binary);
  stream.read(head.data(), head.size());
  return LooksLikeEventFile(
      {head.data(), static_cast<size_t>(stream.gcount())});
}

/// Those with values.
std::vector<ForeignRun> Finished(std::vector<ForeignRun> runs) {
  for (ForeignRun& run : runs) run.Finish();
  std::erase_if(runs, [](const ForeignRun& run) { return run.series.empty(); });
  return runs;
}

std::vector<ForeignRun> RunsOfEvents(const EventFile& file) {
  std::vector<ForeignRun> runs = Finished({RunOfEvents(file)});
  if (!runs.empty()) return runs;
  ThrowError(ErrorKind::kFormat,
             "{} records of events hold no scalar, as of a run that logged "
             "nothing. Give the event file of a training.",
             file.records);
}

std::vector<ForeignRun> ReadPath(const std::filesystem::path& path) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) {
    return RunsOfEvents(ReadEventFolder(path));
  }
  if (IsEventFile(path)) return RunsOfEvents(ReadEventFile(path));
  return ParseLog(
      ReadTextFile(path, "Give a smaller part of the log.", kMostLogBytes));
}

}  // namespace

std::vector<ForeignRun> ParseLog(std::string_view content) {
  if (LooksLikeEventFile(content.substr(0, kEventHead))) {
    return RunsOfEvents(ParseEventFile(content, "the log"));
  }
  std::vector<ForeignRun> runs = Finished(ReadAny(content));
  if (!runs.empty()) return runs;
  ThrowError(ErrorKind::kFormat,
             "{} bytes hold no value of a training log that is known. Give "
             "what torchtitan, Megatron-LM, DeepSpeed, MLPerf, nanoGPT, "
             "Lightning, Hugging Face's Trainer or W&B wrote, or a table with "
             "a step and a loss.",
             content.size());
}

std::vector<ForeignRun> ReadLog(const std::filesystem::path& path) {
  const std::string name = Printable(path.string());
  try {
    return ReadPath(path);
  } catch (const Error& error) {
    // Some have the name in them.
    const std::string message = Printable(error.what());
    throw Error(error.kind(),
                message.starts_with(name) ? message : name + ": " + message);
  }
}

}  // namespace isoloss::foreign

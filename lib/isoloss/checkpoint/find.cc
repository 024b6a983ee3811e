#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <tuple>
#include <utility>

#include "isoloss/base/error.h"
#include "isoloss/base/files.h"
#include "isoloss/base/text_file.h"
#include "isoloss/checkpoint/checkpoint.h"
#include "isoloss/checkpoint/manifest.h"

namespace isoloss::checkpoint {
namespace {

namespace fs = std::filesystem;

/// This folder may be a checkpoint.
struct Candidate {
  fs::path path;
  int64_t step = 0;
  /// ".step-000120.old-4711" is left if its writer was killed while it replaced
  /// it.
  bool set_aside = false;
};

std::optional<Candidate> AsCandidate(const fs::path& path) {
  std::string name = path.filename().string();
  const size_t old = name.find(".old-");
  const bool set_aside = name.starts_with('.') && old != std::string::npos;
  if (set_aside) name = name.substr(1, old - 1);
  const auto step = ParseStepFolderName(name);
  if (!step) return std::nullopt;
  return Candidate{path, *step, set_aside};
}

/// Returns the folders that may be checkpoints, the newest first.
std::vector<Candidate> CandidatesIn(const fs::path& checkpoints) {
  std::vector<Candidate> candidates;
  std::error_code error;
  if (!fs::exists(checkpoints, error) && !error) return candidates;
  for (fs::directory_iterator entry(checkpoints, error), end;
       !error && entry != end; entry.increment(error)) {
    if (auto candidate = AsCandidate(entry->path())) {
      candidates.push_back(std::move(*candidate));
    }
  }
  if (error) {
    errno = error.value();
    ThrowErrno(checkpoints, "list");
  }
  std::sort(candidates.begin(), candidates.end(),
            [](const Candidate& a, const Candidate& b) {
              return std::make_tuple(-a.step, a.set_aside, a.path) <
                     std::make_tuple(-b.step, b.set_aside, b.path);
            });
  return candidates;
}

/// Returns the step that LATEST names. If its text is no name, it returns
/// nothing and adds a note.
std::optional<int64_t> LatestStep(const fs::path& checkpoints,
                                  std::vector<std::string>& notes) {
  const fs::path path = checkpoints / kLatestFile;
  std::error_code ignored;
  if (!fs::is_regular_file(path, ignored)) {
    notes.push_back(
        fmt::format("{}: is missing or no regular file.", path.string()));
    return std::nullopt;
  }
  try {
    std::string text = ReadTextFile(path, "The newest other one is taken.");
    if (text.ends_with('\n')) text.pop_back();
    if (const auto step = ParseStepFolderName(text)) return step;
  } catch (const Error& error) {
    notes.emplace_back(error.what());
    return std::nullopt;
  }
  notes.push_back(
      fmt::format("{}: does not name a checkpoint.", path.string()));
  return std::nullopt;
}

/// Returns the first whole checkpoint that fits.
Found FirstWhole(std::span<const Candidate> candidates, const Misfit& misfit,
                 std::vector<std::string> notes) {
  Found found{.checkpoint = std::nullopt, .notes = std::move(notes)};
  for (const Candidate& candidate : candidates) {
    try {
      found.checkpoint.emplace(candidate.path);
    } catch (const Error& error) {
      found.notes.emplace_back(error.what());
      continue;
    }
    const std::string reason = misfit ? misfit(*found.checkpoint) : "";
    if (!reason.empty()) {
      found.notes.push_back(
          fmt::format("{}: {}.", candidate.path.string(), reason));
      found.checkpoint.reset();
      continue;
    }
    if (candidate.set_aside) {
      found.notes.push_back(
          fmt::format("{}: was being replaced by another one when that was "
                      "interrupted; it is whole.",
                      candidate.path.string()));
    }
    break;
  }
  return found;
}

}  // namespace

Found FindNewest(const fs::path& checkpoints, const Misfit& misfit) {
  std::vector<Candidate> candidates = CandidatesIn(checkpoints);
  std::vector<std::string> notes;
  if (candidates.empty()) return {};
  if (const auto latest = LatestStep(checkpoints, notes)) {
    const auto named = std::find_if(
        candidates.begin(), candidates.end(),
        [&](const Candidate& c) { return c.step == *latest && !c.set_aside; });
    if (named == candidates.end()) {
      notes.push_back(fmt::format("{}: names {}, which is not there.",
                                  (checkpoints / kLatestFile).string(),
                                  StepFolderName(*latest)));
    } else {
      for (auto newer = candidates.begin(); newer != named; ++newer) {
        notes.push_back(fmt::format("{}: is newer than what {} names.",
                                    newer->path.string(), kLatestFile));
      }
      std::rotate(candidates.begin(), named, named + 1);
    }
  }
  return FirstWhole(candidates, misfit, std::move(notes));
}

Found FindNewestUpTo(const fs::path& checkpoints, int64_t step,
                     const Misfit& misfit) {
  std::vector<Candidate> candidates = CandidatesIn(checkpoints);
  std::erase_if(candidates, [&](const Candidate& c) { return c.step > step; });
  return FirstWhole(candidates, misfit, {});
}

}  // namespace isoloss::checkpoint

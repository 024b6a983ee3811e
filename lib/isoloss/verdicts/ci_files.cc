#include "isoloss/verdicts/ci_files.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <cerrno>
#include <span>
#include <string_view>
#include <system_error>

#include "isoloss/base/atomic_file.h"
#include "isoloss/base/error.h"
#include "isoloss/base/files.h"
#include "isoloss/document/junit.h"
#include "isoloss/document/markdown.h"
#include "isoloss/system/output_file.h"

namespace isoloss::verdicts {
namespace {

namespace fs = std::filesystem;

/// An Output is a file that is replaced as a whole.
struct Output {
  fs::path path;
  const char* option;
  std::string (*render)(const document::Report& report);
  system::IsEarlierOutput is_earlier;
};

std::vector<Output> OutputsOf(const CiTargets& targets) {
  std::vector<Output> outputs;
  if (!targets.junit.empty()) {
    outputs.push_back({targets.junit, "--junit", document::RenderJunit,
                       system::HasFirstLineOf(document::kJunitFirstLine)});
  }
  if (!targets.markdown.empty()) {
    outputs.push_back({targets.markdown, "--markdown", document::RenderMarkdown,
                       system::HasFirstLineOf(document::kMarkdownFirstLine)});
  }
  return outputs;
}

/// Returns the folder of a file that is to be written; "." if the path has
/// none.
fs::path FolderOf(const fs::path& path) {
  const fs::path folder = path.parent_path();
  return folder.empty() ? fs::path(".") : folder;
}

void RequireFolder(const fs::path& folder, const fs::path& output,
                   const char* option) {
  std::error_code error;
  if (fs::is_directory(folder, error)) return;
  ThrowError(ErrorKind::kConfig,
             "{}: {} is to be written there, but {} is no folder. Make it, or "
             "give {} another place.",
             output.string(), option, folder.string(), option);
}

void CheckFolders(const CiTargets& targets) {
  if (!targets.junit.empty()) {
    RequireFolder(FolderOf(targets.junit), targets.junit, "--junit");
  }
  if (!targets.markdown.empty()) {
    RequireFolder(FolderOf(targets.markdown), targets.markdown, "--markdown");
  }
}

void CheckOutputFile(const Output& output) {
  std::error_code error;
  if (fs::exists(output.path, error) &&
      !fs::is_regular_file(output.path, error)) {
    ThrowError(ErrorKind::kConfig,
               "{}: {} writes a file, but this is there and no file. Give it "
               "another place.",
               output.path.string(), output.option);
  }
  system::CheckOutput(output.path, {}, "report of isoloss", output.is_earlier,
                      output.option);
}

void RefuseTwins(const std::vector<Output>& outputs) {
  for (size_t i = 0; i < outputs.size(); ++i) {
    const fs::path path = fs::absolute(outputs[i].path).lexically_normal();
    for (size_t k = 0; k < i; ++k) {
      if (fs::absolute(outputs[k].path).lexically_normal() != path) continue;
      ThrowError(ErrorKind::kConfig,
                 "{}: {} and {} both write it. Give one of them another "
                 "place.",
                 outputs[i].path.string(), outputs[k].option,
                 outputs[i].option);
    }
  }
}

Descriptor OpenSummary(const fs::path& path) {
  Descriptor file(
      open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644));
  if (file.get() < 0) {
    ThrowError(ErrorKind::kConfig,
               "{}: the summary of --github can't be written there: {}. "
               "GITHUB_STEP_SUMMARY names it, which GitHub Actions sets: leave "
               "--github out elsewhere.",
               path.string(), std::generic_category().message(errno));
  }
  return file;
}

/// Writes in one piece, after what the step has written before.
void AppendSummary(const fs::path& path, const document::Report& report) {
  const std::string text = document::RenderMarkdown(report);
  WriteAll(OpenSummary(path), std::as_bytes(std::span(text)), path);
}

}  // namespace

bool CiTargets::Any() const {
  return !(junit.empty() && markdown.empty() && summary.empty());
}

void CheckCiTargets(const CiTargets& targets) {
  CheckFolders(targets);
  const std::vector<Output> outputs = OutputsOf(targets);
  RefuseTwins(outputs);
  for (const Output& output : outputs) CheckOutputFile(output);
  if (!targets.summary.empty()) OpenSummary(targets.summary);
}

void WriteCiFiles(const CiTargets& targets, const document::Report& report) {
  for (const Output& output : OutputsOf(targets)) {
    WriteFileAtomically(output.path, output.render(report));
  }
  if (!targets.summary.empty()) AppendSummary(targets.summary, report);
}

void BeginCiFiles(const CiTargets& targets, const std::string& command) {
  CheckCiTargets(targets);
  CiTargets files = targets;
  files.summary.clear();
  WriteCiFiles(files,
               document::ErrorReport(
                   command, 130, "unfinished",
                   "It began and left no verdict: it is still at work, or was "
                   "killed."));
}

std::vector<std::string> WriteCiError(const CiTargets& targets,
                                      const document::Report& report) {
  std::vector<std::string> faults;
  const auto attempt = [&](const CiTargets& one) {
    try {
      CheckCiTargets(one);
      WriteCiFiles(one, report);
    } catch (const Error& error) {
      faults.emplace_back(error.what());
    }
  };
  // Each target has its own attempt: if one can't be written, the rest still
  // are.
  if (!targets.junit.empty()) attempt({.junit = targets.junit});
  if (!targets.markdown.empty()) attempt({.markdown = targets.markdown});
  if (!targets.summary.empty()) attempt({.summary = targets.summary});
  return faults;
}

std::string RepositoryPath(const fs::path& path) {
  std::error_code error;
  const fs::path folder = fs::current_path(error);
  if (error) return path.string();
  const fs::path relative =
      fs::absolute(path).lexically_normal().lexically_relative(folder);
  if (relative.empty() || *relative.begin() == "..") return path.string();
  return relative.string();
}

}  // namespace isoloss::verdicts

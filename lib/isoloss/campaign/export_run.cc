#include "isoloss/campaign/export_run.h"

#include <fmt/format.h>

#include <cstdio>
#include <fstream>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "isoloss/base/atomic_file.h"
#include "isoloss/base/error.h"
#include "isoloss/base/printable.h"
#include "isoloss/campaign/log_files.h"
#include "isoloss/campaign/open_log.h"
#include "isoloss/campaign/output_file.h"
#include "isoloss/foreign/event_writer.h"

namespace isoloss::campaign {
namespace {

namespace fs = std::filesystem;

using foreign::RunForm;

/// What one log becomes.
struct Export {
  fs::path file;
  std::string text;
};

void MakeExportFolder(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (!error) return;
  ThrowError(ErrorKind::kIo,
             "{}: the folder for the files can't be made: {}. Choose another "
             "one with --out.",
             folder.string(), error.message());
}

bool IsEventFileName(const std::string& name) {
  // A hidden one is what a killed export left.
  return !name.starts_with('.') && name.find("tfevents") != std::string::npos;
}

/// All event files of a folder are one run to TensorBoard.
void CheckNoOtherRun(const fs::path& file) {
  std::error_code error;  // a folder that is not there holds none
  for (const fs::directory_entry& entry :
       fs::directory_iterator(file.parent_path(), error)) {
    const fs::path name = entry.path().filename();
    if (!IsEventFileName(name.string()) || name == file.filename()) continue;
    ThrowError(ErrorKind::kConfig,
               "{}: the folder holds the event file {} already, and all of a "
               "folder are one run to TensorBoard. Give another --out.",
               Printable(file.parent_path().string()),
               Printable(name.string()));
  }
}

bool BeginsWith(const fs::path& file, std::string_view text) {
  std::string front(text.size(), '\0');
  std::ifstream stream(file, std::ios::binary);
  stream.read(front.data(), static_cast<std::streamsize>(front.size()));
  return stream && front == text;
}

/// `file` of text forms; of event files the folder.
Export MakeExport(const runlog::RunLog& log, const RunExportPlan& plan,
                  const fs::path& file) {
  Export made = {file, foreign::RunText(log, plan.form)};
  if (plan.form != RunForm::kTensorBoard) {
    CheckOutput(file, {plan.log}, "export of this form",
                plan.form == RunForm::kWandbJsonl ? HasFirstKeysOf(made.text)
                                                  : HasFirstLineOf(made.text));
    return made;
  }
  const double start = foreign::StartOf(log);
  made.file /= foreign::EventFileName(start);
  CheckNoOtherRun(made.file);
  CheckOutput(made.file, {plan.log}, "event file of this run",
              [first = foreign::EventWriter::FirstRecord(start)](
                  const fs::path& old) { return BeginsWith(old, first); });
  return made;
}

void Write(const Export& one, bool say) {
  WriteFileAtomically(one.file, one.text);
  if (say) fmt::print("{}\n", Printable(one.file.string()));
}

void ExportOne(const runlog::RunLog& log, const RunExportPlan& plan) {
  const bool events = plan.form == RunForm::kTensorBoard;
  if (plan.out.empty() && events) {
    ThrowError(ErrorKind::kConfig,
               "export --format tensorboard: no --out is given, but an event "
               "file goes into a folder. Give one with --out.");
  }
  if (plan.out.empty()) {
    const std::string text = foreign::RunText(log, plan.form);
    std::fwrite(text.data(), 1, text.size(), stdout);
    return;
  }
  const Export made = MakeExport(log, plan, plan.out);
  if (events) MakeExportFolder(plan.out);
  Write(made, events);
}

void ExportFolder(const RunExportPlan& plan) {
  const std::vector<compare::Run> runs = ReadRuns({plan.log});
  if (runs.size() == 1) return ExportOne(runs.front().log, plan);
  if (plan.out.empty()) {
    ThrowError(ErrorKind::kConfig,
               "{}: the folder holds {} run logs, but standard output takes "
               "one. Give one log, or a folder with --out.",
               plan.log.string(), runs.size());
  }
  // Nothing is written beside a file that may not be replaced.
  std::vector<Export> all;
  for (const compare::Run& run : runs) {
    fs::path file = plan.out / fs::path(run.file).stem();
    if (plan.form != RunForm::kTensorBoard) {
      file += fmt::format(".{}", foreign::ExtensionOf(plan.form));
    }
    all.push_back(MakeExport(run.log, plan, file));
  }
  for (const Export& one : all) {
    MakeExportFolder(one.file.parent_path());
    Write(one, true);
  }
}

}  // namespace

void ExportRun(const RunExportPlan& plan) {
  std::error_code error;
  if (fs::is_directory(plan.log, error)) {
    ExportFolder(plan);
    return;
  }
  const OpenedLog opened = OpenLog(plan.log);
  if (!opened.note.empty()) fmt::print(stderr, "isoloss: {}\n", opened.note);
  ExportOne(opened.log, plan);
}

}  // namespace isoloss::campaign

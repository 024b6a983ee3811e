// Files of logs that a command was given. A folder stands for what is in it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string_view>
#include <vector>

#include "isoloss/base/error.h"
#include "isoloss/base/printable.h"
#include "isoloss/compare/pair.h"
#include "isoloss/foreign/read.h"
#include "isoloss/runlog/sealed_file.h"

namespace isoloss::campaign {

/// Folders below that of the run logs, so that its *.h5 are run logs only.
inline constexpr std::string_view kProbeFolder = "probes";

/// read(file); what it says of the file is one line, whatever its name is.
template <typename Read>
auto OnOneLine(const Read& read, const std::filesystem::path& file) {
  try {
    return read(file);
  } catch (const runlog::WrongKindError& error) {
    throw runlog::WrongKindError(error.found(), Printable(error.what()));
  } catch (const Error& error) {
    throw Error(error.kind(), Printable(error.what()));
  }
}

/// By its name, NAME.partial.h5: of a run that has not ended.
bool IsPartial(const std::filesystem::path& file);

/// By its name, NAME.probe.h5 or NAME.dump-STEP.h5.
bool IsNamedAsOther(const std::filesystem::path& file);

/// NAME.h5 of a folder, by name, whatever they are; not the hidden ones.
/// Errors   IoError if the folder can't be read.
std::vector<std::filesystem::path> LogsIn(const std::filesystem::path& folder);

/// What shall be kept of logs that are read.
enum class Keep : uint8_t {
  kAll,
  /// What a verdict on precision and its page need: /tensors of one run of each
  /// arm, the first of its least seed that has them. Of the others they are
  /// checked and dropped, which for thousands of runs is most of the memory.
  kForPrecision,
};

/// The run logs of `paths`, each as it was given; a folder stands for those in
/// it, by name: no probes, dumps, ensembles, partial logs or hidden files. Logs
/// of other programs become run logs (foreign_logs.h): a path may be ARM=PATH,
/// and stand for several runs.
/// Errors   as ReadRunLog, but for a file of another kind in a folder: what is
///          damaged or unknown is never passed over;
///          ConfigError if a folder holds none.
std::vector<compare::Run> ReadRuns(
    const std::vector<std::filesystem::path>& paths,
    const foreign::ReadOptions& options = {}, Keep keep = Keep::kAll);

/// `paths`, with the probe logs of a folder (its own and those in `probes`) or
/// its ensembles in place of the folder, by name. What can't be read is among
/// them.
/// Errors   ConfigError if a folder holds none.
std::vector<std::filesystem::path> ProbeFiles(
    const std::vector<std::filesystem::path>& paths);
std::vector<std::filesystem::path> EnsembleFiles(
    const std::vector<std::filesystem::path>& paths);

}  // namespace isoloss::campaign

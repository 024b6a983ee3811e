// Reads the logs that a command was given. A folder stands for the logs in it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string_view>
#include <vector>

#include "isoloss/base/error.h"
#include "isoloss/base/printable.h"
#include "isoloss/compare/pair.h"
#include "isoloss/foreign/read.h"
#include "isoloss/hdf5/sealed_file.h"

namespace isoloss::logs {

/// Probes have a folder below that of the run logs, so that all *.h5 there are
/// run logs.
inline constexpr std::string_view kProbeFolder = "probes";

/// Calls read(file). Its errors take one line each, even if the file's name has
/// line ends.
template <typename Read>
auto OnOneLine(const Read& read, const std::filesystem::path& file) {
  try {
    return read(file);
  } catch (const hdf5::WrongKindError& error) {
    throw hdf5::WrongKindError(error.found(), Printable(error.what()));
  } catch (const Error& error) {
    throw Error(error.kind(), Printable(error.what()));
  }
}

/// Returns whether the name is NAME.partial.h5, which a run has that has not
/// ended.
bool IsPartial(const std::filesystem::path& file);

/// Returns whether the name is NAME.probe.h5 or NAME.dump-STEP.h5.
bool IsNamedAsOther(const std::filesystem::path& file);

/// Returns all NAME.h5 of a folder but hidden ones, by name, whatever they
/// hold.
/// Errors   IoError if the folder can't be read.
std::vector<std::filesystem::path> LogsIn(const std::filesystem::path& folder);

/// Says how much of each log stays in memory.
enum class Keep : uint8_t {
  kAll,
  /// A verdict on precision and its page need /tensors of one run of each arm:
  /// of the smallest seed that has them. The /tensors of all further runs are
  /// checked and dropped, which saves most of the memory with thousands of
  /// runs.
  kForPrecision,
};

/// Reads the run logs of `paths`, each as it was given. A folder stands for the
/// run logs in it, by name, without probes, dumps, ensembles, partial logs and
/// hidden files. Logs of other programs become run logs (foreign_logs.h): a
/// path may be ARM=PATH, and stand for several runs.
/// Errors   as ReadRunLog, but files of another kind in a folder are left out.
///          Damaged or unknown files never are. ConfigError if a folder holds
///          no log.
std::vector<compare::Run> ReadRuns(
    const std::vector<std::filesystem::path>& paths,
    const foreign::ReadOptions& options = {}, Keep keep = Keep::kAll);

/// Returns `paths`, in which the probe logs of a folder (its own and those in
/// `probes`), or its ensembles, take the place of the folder, by name. Files
/// that can't be read are among them.
/// Errors   ConfigError if a folder holds none.
std::vector<std::filesystem::path> ProbeFiles(
    const std::vector<std::filesystem::path>& paths);
std::vector<std::filesystem::path> EnsembleFiles(
    const std::vector<std::filesystem::path>& paths);

}  // namespace isoloss::logs

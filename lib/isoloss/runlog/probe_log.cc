#include "isoloss/runlog/probe_log.h"

#include <algorithm>
#include <string_view>

#include "isoloss/base/error.h"
#include "isoloss/hdf5/sealed_file.h"
#include "isoloss/runlog/probe_log_schema.h"
#include "isoloss/runlog/schema_reader.h"
#include "isoloss/runlog/schema_writer.h"

namespace isoloss::runlog {
namespace {

/// Requires that every place of `column` is in a list with `size` entries.
void CheckPlaces(ErrorKind error, const std::string& file,
                 std::string_view column, const std::vector<int64_t>& places,
                 std::string_view list, size_t size) {
  const auto outside = [size](int64_t place) {
    return place < 0 || place >= static_cast<int64_t>(size);
  };
  const auto bad = std::find_if(places.begin(), places.end(), outside);
  if (bad == places.end()) return;
  ThrowError(error,
             "{}: {} in row {} is {}, but /{} has {} entries, counted from 0. "
             "Probe again.",
             file, column, bad - places.begin(), *bad, list, size);
}

void CheckPlaces(ErrorKind error, const std::string& file,
                 const ProbeLog& log) {
  CheckPlaces(error, file, "/oracle/probe_case", log.oracle.probe_case, "cases",
              log.cases.size());
  CheckPlaces(error, file, "/oracle/tensor", log.oracle.tensor, "tensors",
              log.tensors.size());
  CheckPlaces(error, file, "/routing/probe_case", log.routing.probe_case,
              "cases", log.cases.size());
  CheckPlaces(error, file, "/precision/tensor", log.precision.tensor, "tensors",
              log.tensors.size());
}

/// Each element flips with a probability, so the sum is between 0 and their
/// number.
void CheckExpectedFlips(const std::string& file, const OracleColumns& oracle) {
  for (size_t i = 0; i < oracle.step.size(); ++i) {
    const double expected = oracle.expected_flips[i];
    const auto elements = static_cast<double>(oracle.elements[i]);
    if (0 <= expected && expected <= elements) continue;
    ThrowError(ErrorKind::kFormat,
               "{}: /oracle/expected_flips in row {} is {}, but it must lie "
               "between 0 and the {} elements of the tensor. Probe again.",
               file, i, expected, oracle.elements[i]);
  }
}

}  // namespace

double WorstMissedShare(const ProbeLog& log) {
  double worst = 0.0;
  for (size_t i = 0; i < log.oracle.step.size(); ++i) {
    const auto tensor = static_cast<size_t>(log.oracle.tensor[i]);
    if (log.tensors[tensor].starts_with(kLogPrefix)) continue;
    worst = std::max(worst, log.oracle.MissedShare(i));
  }
  return worst;
}

void WriteProbeLog(const ProbeLog& log, const std::filesystem::path& path) {
  CheckPlaces(ErrorKind::kShape, path.string(), log);
  hdf5::WriteSealedFile(
      path, hdf5::kProbeLogFile, [&log](const hdf5::Handle& file) {
        WriteColumns(file, std::string(hdf5::kProbeLogFile.name),
                     SchemaOf<ProbeLog>(), View(log));
      });
}

ProbeLog ReadProbeLog(const std::filesystem::path& path) {
  ProbeLog log;
  log.charge = hdf5::ReadSealedFile(
      path, hdf5::kProbeLogFile, [&](const hdf5::Object& file) {
        ReadColumns(file, path.string(), hdf5::kProbeLogFile,
                    SchemaOf<ProbeLog>(), MutableView(log));
      });
  CheckPlaces(ErrorKind::kFormat, path.string(), log);
  CheckExpectedFlips(path.string(), log.oracle);
  return log;
}

}  // namespace isoloss::runlog

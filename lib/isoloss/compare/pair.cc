#include "isoloss/compare/pair.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "isoloss/runlog/rows.h"
#include "isoloss/runlog/shared_columns.h"

namespace isoloss::compare {
namespace {

int64_t SeedOf(const Run* run) { return run->log.provenance.seed; }

void SortBySeed(std::vector<const Run*>& runs) {
  std::stable_sort(runs.begin(), runs.end(), [](const Run* a, const Run* b) {
    return SeedOf(a) < SeedOf(b);
  });
}

/// Returns the only run with this seed, or null.
const Run* OnlyRun(const std::vector<const Run*>& runs, int64_t seed) {
  const Run* found = nullptr;
  for (const Run* run : runs) {
    if (SeedOf(run) != seed) continue;
    if (found != nullptr) return nullptr;
    found = run;
  }
  return found;
}

bool SameBytes(const std::filesystem::path& a, const std::filesystem::path& b) {
  std::ifstream first(a, std::ios::binary);
  std::ifstream second(b, std::ios::binary);
  std::array<char, 1 << 16> of_first{};
  std::array<char, 1 << 16> of_second{};
  while (first && second) {
    first.read(of_first.data(), of_first.size());
    second.read(of_second.data(), of_second.size());
    if (first.gcount() != second.gcount() || of_first != of_second) {
      return false;
    }
  }
  return first.eof() && second.eof();
}

}  // namespace

Sameness SamenessOf(const Run& a, const Run& b) {
  namespace fs = std::filesystem;
  const bool one_run =
      a.log.provenance.arm == b.log.provenance.arm ||
      runlog::EqualBits(a.log.steps.loss_nats, b.log.steps.loss_nats);
  if (!one_run || SeedOf(&a) != SeedOf(&b)) return Sameness::kNone;
  std::error_code error;
  if (fs::equivalent(a.file, b.file, error)) return Sameness::kFile;
  const bool alike =
      fs::is_regular_file(a.file, error) &&
      fs::is_regular_file(b.file, error) &&
      fs::file_size(a.file, error) == fs::file_size(b.file, error);
  return alike && !error && SameBytes(a.file, b.file) ? Sameness::kBytes
                                                      : Sameness::kNone;
}

void DropTensors(Run& run) {
  runlog::RunLog& log = run.log;
  if (!run.violations) run.violations = runlog::CheckDomains(log);
  const size_t before = runlog::ValueBytesOf(log);
  log.tensors = {};
  log.charge = hdf5::Lessened(log.charge, before - runlog::ValueBytesOf(log));
}

std::string Label(const Run& run) {
  if (!run.file.empty()) return run.file;
  return fmt::format("arm {}, seed {}", run.log.provenance.arm,
                     run.log.provenance.seed);
}

std::string BaselineArm(const Run& run) {
  const auto& provenance = run.log.provenance;
  return provenance.Knows(runlog::Fact::kExperiment) ? provenance.baseline_arm
                                                     : provenance.arm;
}

std::vector<const Run*> RunsOfArm(std::span<const Run> runs,
                                  std::string_view arm) {
  std::vector<const Run*> chosen;
  for (const Run& run : runs) {
    if (run.log.provenance.arm == arm) chosen.push_back(&run);
  }
  return chosen;
}

std::vector<const Run*> Pairing::All() const {
  std::vector<const Run*> all = baseline;
  all.insert(all.end(), candidate.begin(), candidate.end());
  return all;
}

bool Pairing::Knows(runlog::Fact fact) const {
  return std::ranges::all_of(All(), [fact](const Run* run) {
    return run->log.provenance.Knows(fact);
  });
}

Pairing PairBySeed(std::string_view baseline_arm,
                   std::vector<const Run*> baseline,
                   std::string_view candidate_arm,
                   std::vector<const Run*> candidate) {
  Pairing pairing;
  pairing.baseline_arm = baseline_arm;
  pairing.candidate_arm = candidate_arm;
  SortBySeed(baseline);
  SortBySeed(candidate);
  for (const Run* run : baseline) {
    const Run* alone = OnlyRun(baseline, SeedOf(run));
    const Run* partner = OnlyRun(candidate, SeedOf(run));
    if (alone != nullptr && partner != nullptr) {
      pairing.pairs.push_back({SeedOf(run), alone, partner});
    }
  }
  pairing.baseline = std::move(baseline);
  pairing.candidate = std::move(candidate);
  return pairing;
}

}  // namespace isoloss::compare

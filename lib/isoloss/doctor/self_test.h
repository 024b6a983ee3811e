// Tests whether this machine computes the bits that this version of the code
// stands for.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace isoloss::doctor {

/// Holds a recipe, and the train::NumericsDigest that it has had since its
/// numerics changed last. The digest depends on the recipe and the code alone.
struct KnownNumerics {
  const char* recipe;
  uint64_t digest;
};

/// Returns the digests of recipes that train by different means. golden/curves
/// holds the same digests, which a test compares.
std::span<const KnownNumerics> AllKnownNumerics();

/// The digest of this training was not the known one.
struct WrongNumerics {
  std::string recipe;
  std::string target;  ///< of the kernels, or a GPU
  int threads = 1;
  uint64_t expected = 0;
  uint64_t found = 0;
};

struct SelfTest {
  int trainings = 0;
  std::vector<std::string> targets;  ///< the kernels' in use first; GPUs last
  std::vector<int> threads;          ///< of the executors
  std::vector<WrongNumerics> wrong;
  std::vector<std::string> failures;  ///< of GPUs, which were not tested
};

/// Trains the small model of train::NumericsDigest with each recipe; the scalar
/// code, which is slow, takes the first two only. Trains on each kernel target
/// that this processor has with one thread, and on the target in use with
/// executors of several, then on each GPU. The target in use stays what it was.
/// No other thread may compute meanwhile.
/// Cost     about a second, and some seconds more for each GPU.
SelfTest RunSelfTest(std::span<const KnownNumerics> known = AllKnownNumerics());

/// Says whether all trainings are wrong, those of one target, or those of
/// several threads; "" if none is.
std::string DiagnosisOf(const SelfTest& test);

}  // namespace isoloss::doctor

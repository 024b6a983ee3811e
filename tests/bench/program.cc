#include "program.h"

#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <charconv>
#include <cstdio>
#include <string_view>

#include "isoloss/base/build_info.h"
#include "isoloss/base/error.h"
#include "isoloss/kernels/targets.h"

namespace isoloss::bench {
namespace {

constexpr std::string_view kRoundsOption = "--rounds=";
constexpr int kDefaultRounds = 15;

/// Takes `--rounds=N` out of the arguments.
int TakeRounds(int& argc, char** argv) {
  int rounds = kDefaultRounds;
  int kept = 0;
  for (int i = 0; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (!argument.starts_with(kRoundsOption)) {
      argv[kept++] = argv[i];
      continue;
    }
    const std::string_view number = argument.substr(kRoundsOption.size());
    const auto [end, error] =
        std::from_chars(number.data(), number.data() + number.size(), rounds);
    if (error != std::errc() || end != number.data() + number.size() ||
        rounds < 1) {
      ThrowError(ErrorKind::kConfig,
                 "{} is no number of samples. Give a whole number from 1 on.",
                 argument);
    }
  }
  argc = kept;
  return rounds;
}

}  // namespace

int RunProgram(int argc, char** argv,
               const std::function<void(int rounds)>& register_all) {
  try {
    benchmark::Initialize(&argc, argv);
    const int rounds = TakeRounds(argc, argv);
    if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
    kernels::ForceTargetFromEnvironment();
    const BuildInfo build = GetBuildInfo();
    benchmark::AddCustomContext("kernel_target", kernels::ActiveTarget());
    benchmark::AddCustomContext("commit", build.commit);
    benchmark::AddCustomContext("compiler", build.compiler);
    register_all(rounds);
    benchmark::RunSpecifiedBenchmarks();
    return 0;
  } catch (const Error& error) {
    fmt::print(stderr, "{}: {}\n", argv[0], error.what());
    return 2;
  }
}

}  // namespace isoloss::bench

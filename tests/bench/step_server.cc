// Runs one training step for each line read, and answers with a line of JSON:
// so that another program's step can be timed in turn with it, as torch_step.py
// does by the same protocol.
//
// Usage: step_server RECIPE THREADS SEQUENCES [PRESET [LAYERS EXPERTS]]
//
// PRESET is dsv3-small if it is left out; LAYERS and EXPERTS take the place of
// its own.
#include <fmt/format.h>
#include <time.h>
#include <unistd.h>

#include <charconv>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <string>
#include <string_view>

#include "isoloss/base/error.h"
#include "isoloss/kernels/targets.h"
#include "measure.h"
#include "training_step.h"

namespace isoloss::bench {
namespace {

int NumberFrom1(const char* what, std::string_view text) {
  int number = 0;
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number < 1) {
    ThrowError(ErrorKind::kConfig,
               "{} is `{}`, but must be a whole number from 1 on.", what, text);
  }
  return number;
}

/// Of all threads together.
double ProcessSeconds() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) +
         1e-9 * static_cast<double>(time.tv_nsec);
}

/// Memory of this process that is in RAM.
long ResidentBytes() {
  std::ifstream statm("/proc/self/statm");
  long program_pages = 0;
  long resident_pages = 0;
  if (!(statm >> program_pages >> resident_pages)) {
    ThrowError(ErrorKind::kIo, "/proc/self/statm cannot be read.");
  }
  return resident_pages * sysconf(_SC_PAGESIZE);
}

template <typename... Args>
void Say(fmt::format_string<Args...> format, Args&&... args) {
  fmt::print(format, std::forward<Args>(args)...);
  std::fflush(stdout);
}

void Serve(const StepSetup& setup) {
  const long before = ResidentBytes();
  TrainingStep step(setup);
  for (int warm_up = 0; warm_up < 2; ++warm_up) step.Run();
  Say("{{\"ready\": \"{}\", \"threads\": {}, \"sequences\": {}, "
      "\"parameters\": {}, \"flops\": {}, \"resident_bytes\": {}}}\n",
      setup.recipe, setup.threads, setup.sequences, step.parameters(),
      step.flops(), ResidentBytes() - before);

  std::string line;
  while (std::getline(std::cin, line)) {
    const double peak_before = FmaPeak();
    const double wall = WallSeconds();
    const double cpu = ProcessSeconds();
    const double loss = step.Run();
    const double cpu_ms = 1e3 * (ProcessSeconds() - cpu);
    const double wall_ms = 1e3 * (WallSeconds() - wall);
    const double peak = (peak_before + FmaPeak()) / 2;
    Say("{{\"wall_ms\": {}, \"cpu_ms\": {}, \"loss\": {}, "
        "\"peak_ms\": {}}}\n",
        wall_ms, cpu_ms, loss, 1e3 * step.flops() / peak);
  }
}

}  // namespace
}  // namespace isoloss::bench

int main(int argc, char** argv) {
  using isoloss::bench::NumberFrom1;
  if (argc != 4 && argc != 5 && argc != 7) {
    fmt::print(stderr,
               "usage: step_server RECIPE THREADS SEQUENCES "
               "[PRESET [LAYERS EXPERTS]]\n");
    return 2;
  }
  try {
    isoloss::kernels::ForceTargetFromEnvironment();
    isoloss::bench::StepSetup setup;
    setup.recipe = argv[1];
    setup.threads = NumberFrom1("THREADS", argv[2]);
    setup.sequences = static_cast<size_t>(NumberFrom1("SEQUENCES", argv[3]));
    if (argc > 4) setup.preset = argv[4];
    if (argc > 5) {
      setup.layers = static_cast<size_t>(NumberFrom1("LAYERS", argv[5]));
      setup.experts = static_cast<size_t>(NumberFrom1("EXPERTS", argv[6]));
    }
    isoloss::bench::Serve(setup);
    return 0;
  } catch (const isoloss::Error& error) {
    fmt::print(stderr, "step_server: {}\n", error.what());
    return 2;
  }
}

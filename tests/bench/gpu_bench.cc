// Measures the machine's first GPU, as a table in Markdown: beside cuBLAS and
// beside a copy of its memory, with samples of the bits beside the CPU's.
#include <fmt/format.h>

#include <cstdio>
#include <string>
#include <vector>

#include "gpu_figures.h"
#include "gpu_peer.h"
#include "isoloss/base/build_info.h"
#include "isoloss/base/error.h"
#include "isoloss/base/executor.h"
#include "isoloss/device/cuda/cuda.h"

namespace isoloss::bench {
namespace {

std::string Text(double value) {
  return fmt::format("{:.{}f}", value, value < 1000 ? 2 : 0);
}

/// Prints the figures; returns true if each bar holds and no bit differs.
bool Print(const std::vector<Figure>& figures) {
  bool good = true;
  for (const Figure& figure : figures) {
    const bool measured = figure.value > 0;
    const bool holds = measured && figure.value >= figure.bar;
    good = good && holds && figure.differences.wrong == 0;
    fmt::print("| {} | {} | ≥ {} | {} | {} | {} of {} |\n", figure.name,
               measured ? Text(figure.value) : "not measured", Text(figure.bar),
               holds      ? "holds"
               : measured ? "does not hold"
                          : "",
               figure.absolute, figure.differences.wrong,
               figure.differences.compared);
    std::fflush(stdout);
  }
  return good;
}

int Run() {
  const std::string problem = device::CudaProblem();
  if (!problem.empty()) {
    fmt::print("Speed is not measured: no GPU: {}\n", problem);
    return 0;
  }
  const device::CudaInfo info = device::DescribeCuda(0);
  const auto gpu = device::MakeCuda(0, AvailableProcessors());
  fmt::print(
      "{}, {} multiprocessors, {:.1f} GiB, driver for CUDA {}.{}; "
      "isoloss {}.\n\n",
      info.name, info.multiprocessors,
      static_cast<double>(info.memory) / (1 << 30), info.driver / 1000,
      info.driver % 1000 / 10, GetBuildInfo().commit);
  if (const Cublas cublas; !cublas.problem().empty()) {
    fmt::print("No figures beside it: {}.\n\n", cublas.problem());
  }
  fmt::print(
      "| figure | measured | bar | | absolute | bits that differ from "
      "the CPU's |\n|---|---|---|---|---|---|\n");
  bool good = true;
  for (const auto figures : {RowFigures, ProductFigures, ExpertFigures,
                             TensorCoreFigures, StepFigures}) {
    good = Print(figures(*gpu)) && good;
  }
  return good ? 0 : 1;
}

}  // namespace
}  // namespace isoloss::bench

int main(int /*argc*/, char** argv) {
  try {
    return isoloss::bench::Run();
  } catch (const isoloss::Error& error) {
    fmt::print(stderr, "{}: {}\n", argv[0], error.what());
    return 2;
  }
}

#include "doctor_products.h"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <memory>

#include "isoloss/base/digest.h"
#include "isoloss/base/error.h"
#include "isoloss/device/cuda/cuda.h"
#include "isoloss/device/devices.h"
#include "isoloss/doctor/product_health.h"

namespace isoloss::cli {
namespace {

using doctor::Health;
using doctor::HealthCheck;
using doctor::ProductResult;

std::string Text(const doctor::ProductShape& shape) {
  return fmt::format("{}x{}x{}", shape.rows, shape.cols, shape.depth);
}

std::string CountsText(const ProductResult& result) {
  return fmt::format(
      "{} {}: {} elements of {} products, {} wrong, {:.3g} "
      "TFLOP/s",
      result.kind, Text(result.shape), result.elements, result.products,
      result.wrong, result.FlopPerSecond() / 1e12);
}

HealthCheck CheckOf(const std::string& device, const ProductResult& result) {
  HealthCheck check{.topic = "products",
                    .text = fmt::format("{}: {}", device, CountsText(result)),
                    .values = {{"device", device},
                               {"kind", result.kind},
                               {"shape", Text(result.shape)},
                               {"products", std::to_string(result.products)},
                               {"elements", std::to_string(result.elements)},
                               {"wrong", std::to_string(result.wrong)},
                               {"flop_per_second",
                                fmt::format("{:g}", result.FlopPerSecond())},
                               {"digest", DigestToHex(result.digest)}}};
  if (!result.not_judged.empty()) {
    check.health = Health::kNote;
    check.text = fmt::format("{}: {} is not judged", device, result.kind);
    check.remedy = result.not_judged;
  }
  if (result.is_healthy()) return check;
  check.health = Health::kProblem;
  if (!result.pattern.empty()) check.text += ". " + result.pattern;
  if (result.wrong_digests > 0) {
    check.text += fmt::format(
        ". {} of the device's digests are wrong where no element is",
        result.wrong_digests);
  }
  for (const doctor::WrongElement& wrong : result.first) {
    check.values.emplace_back(fmt::format("product {}, row {}, column {}",
                                          wrong.product, wrong.row, wrong.col),
                              fmt::format("expected {:08x}, found {:08x}",
                                          wrong.expected, wrong.found));
  }
  check.remedy =
      "Take the device out of service: its results can't be trusted.";
  return check;
}

/// Shows progress on a terminal.
void ShowProgress(const ProductResult& result) {
  if (isatty(STDERR_FILENO) == 0) return;
  std::fputs(fmt::format("\r\033[K{}", CountsText(result)).c_str(), stderr);
}

std::unique_ptr<Executor> MakeExecutor(const device::Device& found,
                                       int worker) {
  if (!found.make_executor) {
    return std::make_unique<Executor>(AvailableProcessors());
  }
  return found.make_executor(worker, 1);
}

}  // namespace

void DeclareDoctorProducts(CLI::App& app, DoctorProductsArguments& arguments) {
  AddOption(app, "--gpu", arguments.seconds,
            "Let each GPU multiply at full load for so many seconds, and "
            "compare every element with the bits that the processor computes; "
            "examine nothing else")
      .NumberIn(0.001, 1e6)
      .TypeName("SECONDS")
      .Excludes("--job");
  AddOption(app, "--on", arguments.on,
            "Let this device multiply instead; an emulated one takes small "
            "products")
      .OneOf(device::DeviceNames())
      .Needs("--gpu")
      .ShowDefault();
}

doctor::Examination ExamineDevices(const DoctorProductsArguments& arguments) {
  const std::string problem =
      arguments.on == "gpu" ? device::CudaProblem() : std::string();
  if (!problem.empty()) {
    ThrowError(ErrorKind::kConfig, "--gpu: {}", problem);
  }
  const auto begin = std::chrono::steady_clock::now();
  const device::Device found = device::FindDevice(arguments.on);
  doctor::ProductHealthOptions options{.seconds = arguments.seconds,
                                       .progress = ShowProgress};
  // An emulation has about a millionth of a GPU's speed.
  if (arguments.on != "gpu") options.shape = {48, 80, 512};
  doctor::Examination examination;
  for (int i = 0; i < found.count; ++i) {
    const auto executor = MakeExecutor(found, i);
    const std::string name =
        executor->device().empty() ? "processor" : executor->device();
    for (const ProductResult& result :
         doctor::ExamineProducts(*executor, options)) {
      examination.checks.push_back(CheckOf(name, result));
    }
  }
  if (isatty(STDERR_FILENO) != 0) std::fputs("\r\033[K", stderr);
  examination.seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin)
          .count();
  return examination;
}

}  // namespace isoloss::cli

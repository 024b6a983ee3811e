// Implements `isoloss lab doctor --gpu`, which lets each device multiply at
// full load.
#pragma once

#include <string>

#include "arguments.h"
#include "isoloss/doctor/doctor.h"

namespace isoloss::cli {

struct DoctorProductsArguments {
  double seconds = 0;  ///< 0: not asked for
  std::string on = "gpu";
};

void DeclareDoctorProducts(CLI::App& app, DoctorProductsArguments& arguments);

/// Returns a check for each device and kind of product.
/// Errors   ConfigError if there is no such device.
doctor::Examination ExamineDevices(const DoctorProductsArguments& arguments);

}  // namespace isoloss::cli

#include "isoloss/formats/e4m3.h"

namespace isoloss::formats {

extern constinit const Format kFormat_e4m3 = kE4m3Format;

}  // namespace isoloss::formats

# `find_package(Nervure)` makes the target `Nervure::nervure`, for C and C++.
get_filename_component(_nervure_prefix "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
if(NOT TARGET Nervure::nervure)
  find_package(Threads REQUIRED)
  add_library(Nervure::nervure STATIC IMPORTED)
  set_target_properties(
    Nervure::nervure
    PROPERTIES IMPORTED_LOCATION "${_nervure_prefix}/lib/libnervure.a"
               INTERFACE_INCLUDE_DIRECTORIES "${_nervure_prefix}/include/nervure"
               INTERFACE_LINK_LIBRARIES "Threads::Threads;m;dl")
endif()
unset(_nervure_prefix)

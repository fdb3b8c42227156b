# The lab with ROS 2 Jazzy, of a clone of the repository: podman build --tag lab-ros2 --file lab/ros2.Dockerfile .
FROM docker.io/library/ros:jazzy-ros-base
RUN apt-get update \
    && apt-get install --yes --no-install-recommends \
        curl g++ pkg-config python3-venv ros-jazzy-rmw-cyclonedds-cpp ros-jazzy-rmw-fastrtps-cpp \
    && rm -rf /var/lib/apt/lists/* \
    && curl --proto '=https' --tlsv1.2 --silent --show-error --fail https://sh.rustup.rs \
        | sh -s -- -y --profile minimal
ENV PATH=/root/.cargo/bin:$PATH
COPY . /root/nervure
WORKDIR /root/nervure
RUN make bench-setup linkemu
ENTRYPOINT ["bash", "-c", "source /opt/ros/jazzy/setup.bash && exec .venv/bin/nervure-lab \"$@\"", "nervure-lab"]
